"""token-service without its entries of exchanges in the audit trail: what the trail costs is the difference."""
