//! Listeners that are their own verifiers.

use crate::config::{Listener, Verifier};
use crate::error::GatewayError;
use firstflight::OwnVerifier;
use firstflight::verifier::{Config, Issuer, VerifierKeys};
use std::sync::{Mutex, PoisonError};
use toml::Spanned;

/// The verifiers of the process. Listeners with the same settings have one.
#[derive(Debug, Default)]
pub(crate) struct Verifiers(Mutex<Vec<(Verifier, OwnVerifier)>>);

/// The settings of a listener's verifier, if it is one.
fn settings(listener: &Listener) -> Option<&Verifier> {
    listener.verifier.as_ref().map(Spanned::get_ref)
}

/// Reads the key file of a listener's verifier. `None` if it is none.
/// Errors: when the file is not right.
pub(crate) fn read(listener: &Listener) -> Result<Option<Config>, GatewayError> {
    let Some(settings) = settings(listener) else { return Ok(None) };
    let keys = VerifierKeys::read(&settings.key);
    let VerifierKeys { key, retired } = keys.map_err(|error| {
        let text = format!("verifier: the key file {} {error}", settings.key.display());
        GatewayError::Files(listener.name.get_ref().clone(), text)
    })?;
    let config = Config::default()
        .issuer(Some(Issuer { retired, ..Issuer::new(key) }))
        .allowed(settings.allow.clone())
        .limits(OwnVerifier::limits())
        .members(settings.members);
    Ok(Some(config))
}

impl Verifiers {
    /// The verifier of a listener, which is made if there is none with its settings.
    /// Errors: when its key file is not right.
    pub(crate) fn of(&self, listener: &Listener) -> Result<Option<OwnVerifier>, GatewayError> {
        let Some(settings) = settings(listener) else { return Ok(None) };
        if let Some(known) = self.find(settings) {
            return Ok(Some(known));
        }
        let Some(config) = read(listener)? else { return Ok(None) };
        let made = OwnVerifier::with_config(config).map_err(|error| {
            GatewayError::Files(listener.name.get_ref().clone(), format!("verifier: {error}"))
        })?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((settings.clone(), made.clone()));
        Ok(Some(made))
    }

    fn find(&self, settings: &Verifier) -> Option<OwnVerifier> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(other, _)| other == settings).map(|(_, verifier)| verifier.clone())
    }

    /// Reads the key file of a listener again. The result has to be set when the new configuration is in use.
    /// Errors: when it is not right, or contradicts what the listeners trust.
    pub(crate) fn read_again(
        &self,
        listener: &Listener,
    ) -> Result<Option<(OwnVerifier, Config)>, GatewayError> {
        let known = settings(listener).and_then(|settings| self.find(settings));
        let (Some(verifier), Some(config)) = (known, read(listener)?) else { return Ok(None) };
        verifier.check_config(&config).map_err(|error| {
            GatewayError::Files(listener.name.get_ref().clone(), format!("verifier: {error}"))
        })?;
        Ok(Some((verifier, config)))
    }

    /// Forgets those of no listener.
    pub(crate) fn keep(&self, listeners: &[Listener]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, _)| listeners.iter().any(|listener| settings(listener) == Some(known)));
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<OwnVerifier> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(_, verifier)| verifier.clone()).collect()
    }
}
