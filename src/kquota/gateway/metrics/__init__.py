"""What operators look at: metrics, health and readiness."""
