"""Random programs, run in torch and in the model of its engine."""
