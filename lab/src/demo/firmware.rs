//! Firmware versions and BIOS settings required by the stack for the rack's machines. Each BMC
//! fetches the images from the site's agent before an image is written to the disk. The results are
//! read from the BMCs.

use anyhow::{Context, ensure};
use muster_api::client::Client;
use muster_core::values::Digest;
use serde_json::{Value, json};

use super::DemoOptions;
use super::watch::Watch;
use crate::Rack;
use crate::plan::PRODUCT;

/// The required components: name in the stack, name in the BMC, version, and activation class.
const WANTED: [(&str, &str, &str, &str); 2] = [
    ("bmc", "BMC", "2.0.0", "none"),
    ("bios", "BIOS", "Virtual Rack BIOS 2.0.0", "reboot"),
];
const SETTING: (&str, &str) = ("SriovGlobalEnable", "Enabled");
const SOURCE: &str = "the lab, whose machines they are for";

/// Uploads the firmware images, and writes the required versions and settings into the stack and
/// its lock.
pub(super) async fn want(
    client: &Client,
    options: &DemoOptions,
    stack: &mut Value,
) -> anyhow::Result<()> {
    let mut firmware = Vec::new();
    for (component, own, version, class) in WANTED {
        let image = json!({ "component": own, "version": version }).to_string();
        let (digest, path) = (
            Digest::of(image.as_bytes()),
            options.dir.join(format!("firmware-{component}.json")),
        );
        std::fs::write(&path, image).with_context(|| format!("write {}", path.display()))?;
        client
            .upload_blob(digest, &path)
            .await
            .with_context(|| format!("upload {}", path.display()))?;
        firmware.push(json!({
            "component": component, "version": version, "product": PRODUCT, "image": digest, "class": class, "source": SOURCE,
        }));
    }
    let (name, value) = SETTING;
    let bios = json!([{ "product": PRODUCT, "source": SOURCE, "attributes": { name: value } }]);
    let lock = stack["lock"].is_object();
    ensure!(
        lock,
        "the stack has no lock; make one with `muster stack lock`"
    );
    for pointer in ["", "/lock"] {
        let place = stack.pointer_mut(pointer).context("the stack")?;
        (place["firmware"], place["bios"]) = (json!(firmware), bios.clone());
    }
    Ok(())
}

/// Checks that the machines have the versions and settings, in their BMCs. The API must report the
/// same firmware versions.
pub(super) async fn holds(
    rack: &Rack,
    client: &Client,
    watch: &Watch,
    nodes: &[&str],
) -> anyhow::Result<()> {
    for node in nodes {
        let bmc = rack
            .slot(node)?
            .bmc
            .as_ref()
            .with_context(|| format!("{node} has no BMC"))?;
        let told = client
            .node_facts(node)
            .await?
            .bmc
            .context("what the BMC said")?
            .inventory;
        for (component, own, version, _) in WANTED {
            ensure!(
                bmc.version(own) == version,
                "{own} of {node} is {}",
                bmc.version(own)
            );
            let shown = told
                .firmware
                .iter()
                .find(|seen| seen.id == component)
                .map(|seen| seen.version.as_str());
            ensure!(
                shown == Some(version),
                "the API tells of {component} of {node}: {shown:?}"
            );
        }
        let (name, value) = SETTING;
        ensure!(
            bmc.setting(name) == Some(json!(value)),
            "{name} of {node} is {:?}",
            bmc.setting(name)
        );
    }
    let [(.., bmc, _), (.., bios, _)] = WANTED;
    let (name, value) = SETTING;
    watch.say(&format!(
        "the BMCs of {} have the firmware {bmc}, the BIOS {bios}, and {name} = {value}",
        nodes.join(", ")
    ));
    Ok(())
}
