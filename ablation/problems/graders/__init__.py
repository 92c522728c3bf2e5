"""One module per grader, named as in a problem's `grader` field. Each has two functions:

- `grade_many(pairs, workers)`: the `Grade` of each (problem, visible answer), in order, with up to `workers` processes;
- `gold_answer(problem)`: the visible answer that the problem's own gold (or canonical solution) makes; it must be graded as
  correct before anything is sampled. None if the problem has none.
"""
