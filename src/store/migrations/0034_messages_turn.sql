-- By turn alone: each entry ends with the key (session, seq), so queries by session and turn use this index as well. The entries of new
-- messages follow each other, so that the turns of a commit change the same few pages.
DROP INDEX messages_turn;
CREATE INDEX messages_turn ON messages (turn);
