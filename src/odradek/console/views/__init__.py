"""What the console answers: each module has the routes of one group of questions."""
