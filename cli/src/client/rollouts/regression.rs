//! The option `--halt-on-regression`.

use muster_core::rollout::Regression;

/// Parses `GATE/METRIC=PERCENT`. A single node beyond the percentage halts.
pub(super) fn parse_regression(text: &str) -> Result<Regression, String> {
    let parts = text
        .rsplit_once('=')
        .and_then(|(place, percent)| Some((place.split_once('/')?, percent)));
    let Some(((gate, metric), percent)) = parts else {
        return Err(
            "write GATE/METRIC=PERCENT, such as gpu.nvbandwidth/nvbandwidth.host_to_device=5"
                .to_owned(),
        );
    };
    let percent = percent.strip_suffix('%').unwrap_or(percent);
    Ok(Regression {
        gate: gate.to_owned(),
        metric: metric.to_owned(),
        percent: percent
            .parse()
            .map_err(|_| format!("{percent:?} is no whole percentage"))?,
        nodes: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_is_gate_metric_and_percentage() {
        let found = parse_regression("gpu.nvbandwidth/nvbandwidth.host_to_device=5%").unwrap();
        let percent = (found.percent, found.nodes);
        assert_eq!(
            (&*found.gate, &*found.metric, percent),
            ("gpu.nvbandwidth", "nvbandwidth.host_to_device", (5, 1))
        );
        for wrong in [
            "",
            "gpu.burn",
            "gpu.burn=5",
            "gpu.burn/speed",
            "gpu.burn/speed=",
            "gpu.burn/speed=-5",
            "gpu.burn/speed=2.5",
        ] {
            assert!(parse_regression(wrong).is_err(), "{wrong}");
        }
    }
}
