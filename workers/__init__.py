"""The processes of a run: collectors, learners, the evaluator, and the supervisor that starts them."""
