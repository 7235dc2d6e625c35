//! Health checks.

use std::collections::BTreeMap;
use std::fmt;

use types::{DecodeError, Denc, Reader, UTime, Writer};

use crate::wire::record;

/// How bad it is. The peer's `health_status_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthStatus {
    /// Broken.
    Err,
    /// Not as it should be.
    Warn,
    /// Well.
    #[default]
    Ok,
}

/// `HEALTH_OK` and so on.
impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Err => "HEALTH_ERR",
            Self::Warn => "HEALTH_WARN",
            Self::Ok => "HEALTH_OK",
        })
    }
}

impl Denc for HealthStatus {
    fn encode(&self, w: &mut Writer) {
        w.u8(*self as u8);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Self::Err),
            1 => Ok(Self::Warn),
            2 => Ok(Self::Ok),
            _ => Err(DecodeError::Invalid { what: "health_status_t", rule: "is 0, 1 or 2" }),
        }
    }
}

record! {
    /// One thing that is not as it should be. The peer's `health_check_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    HealthCheck "health_check_t", compat 1, known 2, |f| 2; {
        /// How bad.
        severity: HealthStatus,
        /// A line about it.
        summary: String,
        /// A line about each thing concerned.
        detail: Vec<String>,
        /// Things concerned.
        2 => count: i64,
    }
}

record! {
    /// All checks, by code. The peer's `health_check_map_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    HealthChecks "health_check_map_t", compat 1, known 1, |f| 1; {
        /// By code: `OSD_DOWN` and so on.
        checks: BTreeMap<String, HealthCheck>,
    }
}

impl HealthChecks {
    /// Adds a check, or replaces the one with that code.
    pub fn add(
        &mut self,
        code: &str,
        severity: HealthStatus,
        summary: impl Into<String>,
        count: i64,
    ) -> &mut HealthCheck {
        let check = self.checks.entry(code.to_owned()).or_default();
        *check = HealthCheck { severity, summary: summary.into(), detail: Vec::new(), count };
        check
    }

    /// The worst there is.
    #[must_use]
    pub fn status(&self) -> HealthStatus {
        self.checks.values().map(|c| c.severity).min().unwrap_or_default()
    }
}

record! {
    /// A check not to be told of. The peer's `health_mute_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    HealthMute "health_mute_t", compat 1, known 1, |f| 1; {
        /// The check.
        code: String,
        /// Until when; zero is for ever.
        ttl: UTime,
        /// Also when the check went away in between.
        sticky: bool,
        /// Its line then.
        summary: String,
        /// Things concerned then.
        count: i64,
    }
}
