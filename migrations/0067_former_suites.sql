-- Suites stored before the rule of programs: a gate starts a program of its parser, or a program that the image ships. The gates of these specs go on as they are.
-- A changed suite must follow the rule. No later statement adds a row.
CREATE TABLE former_suites (
    suite_id uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    spec     jsonb NOT NULL
);
INSERT INTO former_suites (suite_id, spec) SELECT id, spec FROM objects WHERE kind = 'suite';
