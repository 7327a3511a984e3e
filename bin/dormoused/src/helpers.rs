//! What works for the loop and would block it: questions to name servers, to web servers and to the gateway's database, slow public-key operations; and where
//! the audit is written. Owns them; what they find comes back to the loop.

use crate::audit::Auditor;
use crate::joining::Cluster;
use crate::keeper::Keeper;
use crate::names::Names;
use crate::public_keys::PublicKeys;
use crate::scrape::Scrapes;
use anyhow::Result;
use dormouse_io::fetch::Fetcher;
use dormouse_io::web::Web;
use dormouse_node::config::file;

/// See the module's documentation.
pub(crate) struct Helpers {
    /// What a gateway writes into its database.
    pub(crate) keeper: Option<Keeper>,
    /// What it knows of the gateways that share one.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) auditor: Auditor,
    pub(crate) names: Names,
    pub(crate) fetcher: Fetcher,
    pub(crate) public_keys: PublicKeys,
    /// Where the daemon's numbers are read, if they are shown.
    pub(crate) scrapes: Option<Scrapes>,
}

impl Helpers {
    /// Begins them. Their threads have the privileges of the loop: it must have given its own away. `keeper`: of a gateway.
    /// `marked`: names that the system does not know are asked for outside of the block too. `shown`: where numbers are read.
    ///
    /// # Errors
    /// Names what is missing or refused.
    pub(crate) fn new(
        keeper: Option<Keeper>,
        cluster: Option<Cluster>,
        audit: &file::Audit,
        ike_port: u16,
        marked: bool,
        shown: Option<Web>,
    ) -> Result<Self> {
        Ok(Self {
            keeper,
            cluster,
            auditor: Auditor::new(audit)?,
            names: Names::new(ike_port, marked)?,
            fetcher: Fetcher::new()?,
            public_keys: PublicKeys::new()?,
            scrapes: shown.map(Scrapes::new).transpose()?,
        })
    }
}
