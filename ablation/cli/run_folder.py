"""Which run folder a command reads, and which locked plan it is of: shared by the commands that judge a finished run."""

from ablation.study.run_folder import find_run, refuse_special_files

__all__ = ["find_run", "refuse_special_files"]
