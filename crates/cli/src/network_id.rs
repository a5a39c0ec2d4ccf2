//! `--network-id`: on which network this host is.

use firstflight::credential::NetworkId;
use firstflight_files::from_hex;
use std::str::FromStr;

/// Which network this host is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkChoice {
    /// That of the default route's gateway.
    Auto,
    Id(NetworkId),
}

impl NetworkChoice {
    /// The network's id. It is determined only if it `matters`. Right after joining a network this may take a fraction of a
    /// second.
    pub async fn network(self, matters: bool) -> NetworkId {
        match self {
            Self::Id(id) => id,
            Self::Auto if !matters => NetworkId::UNKNOWN,
            Self::Auto => {
                let found = tokio::task::spawn_blocking(firstflight::network_id).await;
                found.ok().flatten().unwrap_or(NetworkId::UNKNOWN)
            }
        }
    }
}

impl FromStr for NetworkChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "give 32 hexadecimal digits (not all 0), auto or none";
        match text {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::Id(NetworkId::UNKNOWN)),
            _ => {}
        }
        let id = from_hex(text).map(|id| NetworkId(*id)).filter(|id| *id != NetworkId::UNKNOWN);
        id.map(Self::Id).ok_or(WRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_ids() {
        let id = NetworkChoice::Id(NetworkId(*b"0123456789abcdef"));
        assert_eq!("30313233343536373839616263646566".parse(), Ok(id));
        assert_eq!("auto".parse(), Ok(NetworkChoice::Auto));
        assert_eq!("none".parse(), Ok(NetworkChoice::Id(NetworkId::UNKNOWN)));
        for wrong in ["", "3031", "+3031323334353637383961626364656", "00000000000000000000000000000000"] {
            assert!(wrong.parse::<NetworkChoice>().is_err(), "{wrong}");
        }
    }
}
