-- Failed logins of each account. The delay of the next login grows with the number of failures. Both tables are bounded: no name without a person is
-- stored.
CREATE TABLE sign_in_delays (
    -- The id of a person. For names without a person, one of 65,536 slots by a keyed hash of the name: `unknown/1a2b`.
    account    text NOT NULL,
    -- An IPv4 address or IPv6 /64 from which the person has signed in. Empty: all other sources together.
    source     text NOT NULL,
    -- Failures since the last login.
    failures   integer NOT NULL,
    -- The latest failure or login.
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (account, source)
);

-- Failures of the present minute. A task replaces the rows of a past minute by one event for each source.
CREATE TABLE sign_in_failures (
    minute   timestamptz NOT NULL,
    source   text NOT NULL,
    -- The person's name. Empty: a name without a person.
    account  text NOT NULL,
    reason   text NOT NULL,
    failures bigint NOT NULL,
    PRIMARY KEY (minute, source, account, reason)
);
