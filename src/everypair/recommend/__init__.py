"""From ids to ids: recipes, the fitted state that answers, explanations, updates, and files of recommenders."""
