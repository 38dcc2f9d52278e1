"""token-service without the entries of exchanges in the audit trail, to measure the cost of the trail."""
