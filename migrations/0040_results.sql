-- What counts of a gate's result is asked of a week of them at once, each with up to 128 KiB of evidence beside it in `result`: it stands in columns,
-- so that nobody unpacks the evidence to read one word.
ALTER TABLE gate_results
    ADD COLUMN shadow boolean NOT NULL DEFAULT false,
    ADD COLUMN waived boolean NOT NULL DEFAULT false;

UPDATE gate_results SET shadow = result @> '{"shadow": true}', waived = result @> '{"waived": {}}'
WHERE result @> '{"shadow": true}' OR result @> '{"waived": {}}';
