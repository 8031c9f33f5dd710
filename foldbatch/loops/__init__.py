"""The loop language: functions over single integers, and the records that they read and write."""
