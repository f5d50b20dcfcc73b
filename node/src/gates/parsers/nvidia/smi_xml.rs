//! Parser for `nvidia-smi -q -x` with the document types nvsmi_device_v12 (driver 535) and v13 (570
//! and newer). The document states the number of attached GPUs, and fewer GPUs in the document are
//! an error. Entities are not expanded: another document type, or an entity beyond the five of XML,
//! is rejected. Users choose the names of processes, and nvidia-smi writes the names without
//! escaping. All names are removed before parsing, so a name cannot forge a value.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::fields::{XML_CUDA, XML_DRIVER};
use super::head;
use super::leaf::{self, Leaves, keep};
use super::smi_status;
use crate::gates::parsers::{Answer, Reading, scan};

const ROOT: &str = "nvidia_smi_log";
const DOCUMENT_TYPES: [&str; 2] = [
    "nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\"",
    "nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\"",
];
/// Deeper than any document of nvidia-smi.
const DEPTH_MAX: usize = 16;
const GPUS_MAX: usize = 256;
/// Lists below a GPU.
const LISTS: [&str; 4] = [
    "processes",
    "accounted_processes",
    "supported_clocks",
    "mig_devices",
];
const NAME_BEGINS: &str = "<process_name>";
const NAME_ENDS: &str = "</process_name>";

#[derive(Default)]
struct Document {
    known_type: bool,
    finished: bool,
    /// Values beside the GPUs, at the top level.
    head: Leaves,
    gpus: Vec<Gpu>,
}

#[derive(Default)]
struct Gpu {
    address: String,
    leaves: Leaves,
    processes: u32,
    /// `<processes>` is present. Without the element, the number of processes is unknown instead of
    /// 0.
    lists_processes: bool,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if let Some(ended) = smi_status::read_end(answer) {
        return ended;
    }
    let text = without_names(answer.text);
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err("it is not UTF-8".into());
    }
    let document = read(&text)?;
    let attached = document.head.get("attached_gpus");
    let attached = attached.ok_or("there is no attached_gpus")?;
    let attached = scan::count(attached).ok_or("attached_gpus is no count")?;
    if attached != document.gpus.len() as f64 || document.gpus.is_empty() {
        return Err(format!(
            "{attached} GPUs are attached, it tells of {}",
            document.gpus.len()
        ));
    }
    let mut reading = Reading::default();
    reading.add("gpu.count", attached);
    head::add_versions(&mut reading, &document.head, XML_DRIVER, XML_CUDA)?;
    for gpu in &document.gpus {
        leaf::add(&mut reading, &gpu.address, &gpu.leaves, |field| field.xml)?;
        if gpu.lists_processes {
            reading.add_of("gpu.processes", &gpu.address, gpu.processes);
        }
    }
    Ok(reading)
}

/// Returns the document with empty process names. A name containing its own end tag is removed up
/// to the last end tag. A name that also contains another begin tag leaves the text between the
/// tags. [`open`] rejects such text or counts another process.
fn without_names(text: &str) -> String {
    let mut pieces = text.split(NAME_BEGINS);
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push_str(NAME_BEGINS);
        kept.push_str(piece.rfind(NAME_ENDS).map_or(piece, |end| &piece[end..]));
    }
    kept
}

fn read(text: &str) -> Result<Document, String> {
    let mut reader = Reader::from_str(text);
    let mut document = Document::default();
    let mut path: Vec<String> = Vec::new();
    let mut held = String::new();
    loop {
        let event = reader
            .read_event()
            .map_err(|error| format!("it is not XML: {error}"))?;
        match event {
            Event::DocType(kind) => {
                let kind: &str = &kind;
                let kind = kind.trim();
                document.known_type = DOCUMENT_TYPES.contains(&kind);
                if !document.known_type {
                    return Err(format!("document type {:?} is not known", scan::word(kind)));
                }
            }
            Event::Start(tag) => {
                open(&mut document, &mut path, &tag)?;
                held.clear();
            }
            Event::Empty(tag) => {
                open(&mut document, &mut path, &tag)?;
                close(&mut document, &mut path, "")?;
                held.clear();
            }
            Event::End(_) => {
                close(&mut document, &mut path, &held)?;
                held.clear();
            }
            Event::Text(text) if path.is_empty() && !text.trim().is_empty() => {
                return Err("something stands beside its root".into());
            }
            Event::Text(text) => held.push_str(&text),
            // The character of the entity is irrelevant, so `&` replaces all five.
            Event::GeneralRef(name) if ["amp", "lt", "gt", "quot", "apos"].contains(&&*name) => {
                held.push('&')
            }
            Event::GeneralRef(name) => {
                return Err(format!("entity {:?} is not expanded", scan::word(&name)));
            }
            Event::Decl(_) if path.is_empty() => {}
            // Two process names could begin and end such a construct, and hide everything between
            // the names.
            Event::Decl(_) | Event::Comment(_) | Event::CData(_) | Event::PI(_) => {
                return Err("it holds what nvidia-smi does not write".into());
            }
            Event::Eof => break,
        }
    }
    match (document.known_type, document.finished) {
        (true, true) => Ok(document),
        (false, _) => Err("it names no document type".into()),
        (true, false) => Err("it ends before its last element does".into()),
    }
}

fn open(
    document: &mut Document,
    path: &mut Vec<String>,
    tag: &BytesStart<'_>,
) -> Result<(), String> {
    let name = tag.name().into_inner().to_owned();
    if path.is_empty() && (name != ROOT || document.finished) {
        return Err(format!("its root is {:?}, not {ROOT}", scan::word(&name)));
    }
    if path.len() >= DEPTH_MAX {
        return Err("it is nested too deep".into());
    }
    // Only a GPU has an attribute, its id. In any other attribute, two process names could hide
    // everything between the names.
    let attributes: Vec<_> = tag.attributes().with_checks(false).take(2).collect();
    if path.len() == 1 && name == "gpu" {
        let [Ok(id)] = attributes.as_slice() else {
            return Err("a GPU has no id, or more than that".into());
        };
        let address = Some(id)
            .filter(|id| id.key.into_inner() == "id")
            .and_then(|id| scan::pci_address(&id.value));
        let address = address.ok_or("a GPU's id is no PCI address")?;
        if document.gpus.len() >= GPUS_MAX || document.gpus.iter().any(|gpu| gpu.address == address)
        {
            return Err(format!("GPU {address} stands there twice"));
        }
        document.gpus.push(Gpu {
            address,
            ..Gpu::default()
        });
    } else if !attributes.is_empty() {
        return Err(format!(
            "{:?} has what nvidia-smi does not write",
            scan::word(&name)
        ));
    }
    if let Some(gpu) = within_gpu(document, path) {
        match (path.len(), name.as_str()) {
            // A process name which closes the list must open the list again. A second list thus
            // reveals elements forged by a name.
            (2, "processes") if gpu.lists_processes => {
                return Err(format!("GPU {} lists its processes twice", gpu.address));
            }
            (2, "processes") => gpu.lists_processes = true,
            (3, "process_info") if path[2] == "processes" => gpu.processes += 1,
            _ => {}
        }
    }
    path.push(name);
    Ok(())
}

/// Ends the innermost element, and stores its text as a value unless the element belongs to a list.
fn close(document: &mut Document, path: &mut Vec<String>, held: &str) -> Result<(), String> {
    match path.as_slice() {
        [_] => document.finished = true,
        [_, name] if name != "gpu" => keep(&mut document.head, name.clone(), held),
        // Lists of processes and clocks repeat their elements, and no metric uses the elements.
        [_, gpu, list, ..] if gpu == "gpu" && LISTS.contains(&list.as_str()) => {}
        [_, gpu, rest @ ..] if gpu == "gpu" && !rest.is_empty() => {
            let joined = rest.join("/");
            if let Some(gpu) = within_gpu(document, path) {
                keep(&mut gpu.leaves, joined, held);
            }
        }
        _ => {}
    }
    path.pop()
        .map(|_| ())
        .ok_or_else(|| "it closes what was never opened".to_owned())
}

/// Returns the GPU containing the path.
fn within_gpu<'a>(document: &'a mut Document, path: &[String]) -> Option<&'a mut Gpu> {
    path.get(1)
        .filter(|name| *name == "gpu")
        .and_then(|_| document.gpus.last_mut())
}
