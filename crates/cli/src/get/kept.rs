//! A certificate in a file, which `get` shows to the one site that it is for.

use super::GetError;
use crate::output;
use firstflight::ClientBuilder;
use firstflight::credential::NetworkId;
use firstflight::credential::asap::{ClientCertificate, PrivateKey};
use firstflight::{Authority, record::Published};
use firstflight_verifier::{
    IssuerAddress, KeptCertificate, ObtainError, Patience, Site, Wanted, obtain, secure_rng,
};
use firstflight_wire::asap::VerifierId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long the command waits at its end for a renewal that it began.
const PATIENCE: Duration = Duration::from_secs(2);

/// The certificate, and its renewal if that is under way.
pub struct Kept {
    file: KeptCertificate,
    certificate: Arc<ClientCertificate>,
    site: Site,
    renewing: Option<JoinHandle<Result<ClientCertificate, ObtainError>>>,
}

impl Kept {
    /// Opens a file for a command that visits these servers from this network. If the certificate is due, its renewal begins.
    ///
    /// # Errors
    /// When the file is of no use here and now, or the servers are more than one site.
    pub fn open(path: &Path, servers: &[Authority], network: NetworkId) -> Result<Self, GetError> {
        let mut sites = servers.iter().map(|server| Site::new(&server.host().to_string()));
        let site = sites.next().ok_or(GetError::KeptSites)?;
        if sites.any(|other| other != site) {
            return Err(GetError::KeptSites);
        }
        let mut file = KeptCertificate::open(path).map_err(GetError::Kept)?;
        let certificate = file.use_for(&site, network).map_err(GetError::Kept)?;
        let renewing = file.due().map(|from| tokio::spawn(renew(from, Arc::clone(&certificate))));
        Ok(Self { file, certificate, site, renewing })
    }

    /// The id of its verifier.
    pub fn verifier(&self) -> VerifierId {
        self.certificate.verifier().id()
    }

    /// Gives a client the certificate.
    pub fn show(
        &self,
        builder: ClientBuilder,
        known: &[(Authority, Published)],
        once: bool,
    ) -> ClientBuilder {
        let builder = builder.certificate_for(Arc::clone(&self.certificate), self.site.clone());
        let record = |builder: ClientBuilder, (server, record): &(Authority, Published)| {
            builder.record(server.clone(), record.clone())
        };
        known.iter().fold(builder.servers_run_once(once), record)
    }

    /// Writes the renewed certificate, if there is one or will be soon.
    pub async fn end(mut self) {
        let Some(mut renewing) = self.renewing.take() else { return };
        let answer = match tokio::time::timeout(PATIENCE, &mut renewing).await {
            Ok(Ok(answer)) => answer,
            // It is tried again by the next command, and until then the certificate is good.
            Ok(Err(_)) => return,
            Err(_) => return renewing.abort(),
        };
        match answer {
            Ok(certificate) => {
                if let Err(error) = self.file.renew(certificate) {
                    output::complain(&error);
                }
            }
            Err(error) => output::complain(&format_args!("the certificate was not renewed: {error}")),
        }
    }
}

async fn renew(from: IssuerAddress, old: Arc<ClientCertificate>) -> Result<ClientCertificate, ObtainError> {
    let key = PrivateKey::generate(&mut secure_rng().map_err(ObtainError::System)?);
    // The verifier gives as much as it may.
    let wanted = Wanted { key, wished: firstflight_verifier::LONGEST_DURATION, old: Some(&old) };
    obtain(&from, wanted, &Patience::default()).await
}
