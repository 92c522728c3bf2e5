"""`python -m ablation`."""

from ablation.cli.main import main

main()
