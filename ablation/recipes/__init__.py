"""Recipes: code that makes what a plan names as `recipe:NAME/PART`. `ablation prepare PLAN` runs them."""

RECIPES = {"smollm2": "ablation.recipes.smollm2"}
"""Recipe -> the module that has its `PARTS`. Names and not modules: a recipe is imported when it is run."""
