"""Reading the trail: pages of entries, single entries, exports and figures."""
