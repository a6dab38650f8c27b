-- Taking each word of a summary out of the index in place, each time it is written anew, costs more the more is known. What is
-- replaced is marked as gone, and leaves the file with the next merge; whatever forgets merges all at once.
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 0);
