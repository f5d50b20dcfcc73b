//! The typed client of the control socket.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Act, CONTROL_SOCKET, DiskAnswer, DiskQuery, MachineView};
use crate::bmc::Event;
use crate::error::LabError;
use crate::machine::oracle::Entry;

/// Request timeout, longer than the slowest power change.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A client of a running rack.
#[derive(Clone, Debug)]
pub struct LabClient {
    http: Client,
}

impl LabClient {
    /// Builds a client of the rack in `dir`. The first request opens the connection.
    pub fn new(dir: &Path) -> Result<Self, LabError> {
        let http = Client::builder()
            .unix_socket(dir.join(CONTROL_SOCKET))
            .timeout(TIMEOUT)
            .no_proxy()
            .build();
        http.map(|http| Self { http })
            .map_err(|error| failed(&error))
    }

    /// Returns the state of every machine.
    pub async fn machines(&self) -> Result<Vec<MachineView>, LabError> {
        self.get("/machines").await
    }

    /// Returns the state of the named machine.
    pub async fn machine(&self, name: &str) -> Result<MachineView, LabError> {
        self.get(&format!("/machines/{name}")).await
    }

    /// Performs an act on a machine, such as pressing its power button.
    pub async fn act(&self, name: &str, act: &Act) -> Result<(), LabError> {
        self.send(Method::POST, &format!("/machines/{name}/act"), Some(act))
            .await
            .map(drop)
    }

    /// Returns the log of a machine's power and faults, oldest first.
    pub async fn oracle(&self, name: &str) -> Result<Vec<Entry>, LabError> {
        self.get(&format!("/machines/{name}/oracle")).await
    }

    /// Returns the event log of a machine's BMC, oldest first.
    pub async fn events(&self, name: &str) -> Result<Vec<Event>, LabError> {
        self.get(&format!("/machines/{name}/events")).await
    }

    /// Reads a disk of a machine through its file on the host.
    pub async fn read_disk(
        &self,
        name: &str,
        serial: &str,
        query: &DiskQuery,
    ) -> Result<DiskAnswer, LabError> {
        let response = self
            .send(
                Method::POST,
                &format!("/machines/{name}/disks/{serial}"),
                Some(query),
            )
            .await?;
        response.json().await.map_err(|error| failed(&error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, LabError> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        response.json().await.map_err(|error| failed(&error))
    }

    async fn send<T: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&T>,
    ) -> Result<Response, LabError> {
        let request = self.http.request(method, format!("http://lab{path}"));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = request.send().await.map_err(|error| failed(&error))?;
        match response.status().is_success() {
            true => Ok(response),
            false => {
                let status = response.status();
                let why = response.text().await.unwrap_or_default();
                Err(LabError::Machine {
                    machine: format!("the lab ({status})"),
                    why,
                })
            }
        }
    }
}

fn failed(error: &reqwest::Error) -> LabError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    LabError::Machine {
        machine: "the lab's control socket".to_owned(),
        why,
    }
}
