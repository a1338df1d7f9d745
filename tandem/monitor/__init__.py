"""What is happening in a run: records, the journal they are kept in, views, time by part, resource samples."""
