-- Who brought which bytes, and when: written with its event once the file is there. A file without a row was put there before this, beside the server, or by
-- an upload that was cut short right after it; whoever sends it again writes the row and the event.
CREATE TABLE blobs (
    digest    bytea PRIMARY KEY CHECK (length(digest) = 32),
    size      bigint NOT NULL CHECK (size >= 0),
    stored_at timestamptz NOT NULL,
    stored_by text NOT NULL
);
