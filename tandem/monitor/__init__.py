"""What is happening: where the time goes, and the records that every view is made from."""
