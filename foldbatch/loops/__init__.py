"""The loop language: functions of single numbers and records, and what compiles them and calls them."""
