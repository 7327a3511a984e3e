//! Notify and delete payloads (RFC 7296 sections 3.10 and 3.11) and the registry of notify message types.
//!
//! Owns their formats and code points. Must never interpret the data of a notification beyond its length fields.

use super::limits;
use crate::codec::{Reader, Writer, code_points};
use crate::{Error, Result};

code_points! {
    /// The protocol that a proposal, notification or deletion is about.
    pub enum ProtocolId: u8 {
        /// No protocol: the notification concerns no particular SA.
        None = 0, "none";
        Ike = 1, "IKE";
        Ah = 2, "AH";
        Esp = 3, "ESP";
        /// RFC 4595.
        FcEspHeader = 4, "FC_ESP_HEADER";
        /// RFC 4595.
        FcCtAuthentication = 5, "FC_CT_AUTHENTICATION";
    }
}

code_points! {
    /// What a notification says. Below 16384 an error, otherwise a status.
    pub enum NotifyType: u16 {
        UnsupportedCriticalPayload = 1, "UNSUPPORTED_CRITICAL_PAYLOAD";
        InvalidIkeSpi = 4, "INVALID_IKE_SPI";
        InvalidMajorVersion = 5, "INVALID_MAJOR_VERSION";
        InvalidSyntax = 7, "INVALID_SYNTAX";
        InvalidMessageId = 9, "INVALID_MESSAGE_ID";
        InvalidSpi = 11, "INVALID_SPI";
        NoProposalChosen = 14, "NO_PROPOSAL_CHOSEN";
        InvalidKePayload = 17, "INVALID_KE_PAYLOAD";
        AuthenticationFailed = 24, "AUTHENTICATION_FAILED";
        SinglePairRequired = 34, "SINGLE_PAIR_REQUIRED";
        NoAdditionalSas = 35, "NO_ADDITIONAL_SAS";
        InternalAddressFailure = 36, "INTERNAL_ADDRESS_FAILURE";
        FailedCpRequired = 37, "FAILED_CP_REQUIRED";
        TsUnacceptable = 38, "TS_UNACCEPTABLE";
        InvalidSelectors = 39, "INVALID_SELECTORS";
        /// RFC 4555.
        UnacceptableAddresses = 40, "UNACCEPTABLE_ADDRESSES";
        /// RFC 4555.
        UnexpectedNatDetected = 41, "UNEXPECTED_NAT_DETECTED";
        /// RFC 5026.
        UseAssignedHoa = 42, "USE_ASSIGNED_HoA";
        TemporaryFailure = 43, "TEMPORARY_FAILURE";
        ChildSaNotFound = 44, "CHILD_SA_NOT_FOUND";
        /// RFC 9370.
        StateNotFound = 47, "STATE_NOT_FOUND";
        /// RFC 9611.
        TsMaxQueue = 48, "TS_MAX_QUEUE";

        InitialContact = 16384, "INITIAL_CONTACT";
        SetWindowSize = 16385, "SET_WINDOW_SIZE";
        AdditionalTsPossible = 16386, "ADDITIONAL_TS_POSSIBLE";
        IpcompSupported = 16387, "IPCOMP_SUPPORTED";
        NatDetectionSourceIp = 16388, "NAT_DETECTION_SOURCE_IP";
        NatDetectionDestinationIp = 16389, "NAT_DETECTION_DESTINATION_IP";
        Cookie = 16390, "COOKIE";
        UseTransportMode = 16391, "USE_TRANSPORT_MODE";
        HttpCertLookupSupported = 16392, "HTTP_CERT_LOOKUP_SUPPORTED";
        RekeySa = 16393, "REKEY_SA";
        EspTfcPaddingNotSupported = 16394, "ESP_TFC_PADDING_NOT_SUPPORTED";
        NonFirstFragmentsAlso = 16395, "NON_FIRST_FRAGMENTS_ALSO";
        /// RFC 4555.
        MobikeSupported = 16396, "MOBIKE_SUPPORTED";
        /// RFC 4555.
        AdditionalIp4Address = 16397, "ADDITIONAL_IP4_ADDRESS";
        /// RFC 4555.
        AdditionalIp6Address = 16398, "ADDITIONAL_IP6_ADDRESS";
        /// RFC 4555.
        NoAdditionalAddresses = 16399, "NO_ADDITIONAL_ADDRESSES";
        /// RFC 4555.
        UpdateSaAddresses = 16400, "UPDATE_SA_ADDRESSES";
        /// RFC 4555.
        Cookie2 = 16401, "COOKIE2";
        /// RFC 4555.
        NoNatsAllowed = 16402, "NO_NATS_ALLOWED";
        /// RFC 4478.
        AuthLifetime = 16403, "AUTH_LIFETIME";
        /// RFC 4739.
        MultipleAuthSupported = 16404, "MULTIPLE_AUTH_SUPPORTED";
        /// RFC 4739.
        AnotherAuthFollows = 16405, "ANOTHER_AUTH_FOLLOWS";
        /// RFC 5685.
        RedirectSupported = 16406, "REDIRECT_SUPPORTED";
        /// RFC 5685.
        Redirect = 16407, "REDIRECT";
        /// RFC 5685.
        RedirectedFrom = 16408, "REDIRECTED_FROM";
        /// RFC 5723.
        TicketLtOpaque = 16409, "TICKET_LT_OPAQUE";
        /// RFC 5723.
        TicketRequest = 16410, "TICKET_REQUEST";
        /// RFC 5723.
        TicketAck = 16411, "TICKET_ACK";
        /// RFC 5723.
        TicketNack = 16412, "TICKET_NACK";
        /// RFC 5723.
        TicketOpaque = 16413, "TICKET_OPAQUE";
        /// RFC 5739.
        LinkId = 16414, "LINK_ID";
        /// RFC 5840.
        UseWespMode = 16415, "USE_WESP_MODE";
        /// RFC 5857.
        RohcSupported = 16416, "ROHC_SUPPORTED";
        /// RFC 5998.
        EapOnlyAuthentication = 16417, "EAP_ONLY_AUTHENTICATION";
        /// RFC 6023.
        ChildlessIkev2Supported = 16418, "CHILDLESS_IKEV2_SUPPORTED";
        /// RFC 6290.
        QuickCrashDetection = 16419, "QUICK_CRASH_DETECTION";
        /// RFC 6311.
        Ikev2MessageIdSyncSupported = 16420, "IKEV2_MESSAGE_ID_SYNC_SUPPORTED";
        /// RFC 6311.
        IpsecReplayCounterSyncSupported = 16421, "IPSEC_REPLAY_COUNTER_SYNC_SUPPORTED";
        /// RFC 6311.
        Ikev2MessageIdSync = 16422, "IKEV2_MESSAGE_ID_SYNC";
        /// RFC 6311.
        IpsecReplayCounterSync = 16423, "IPSEC_REPLAY_COUNTER_SYNC";
        /// RFC 6467.
        SecurePasswordMethods = 16424, "SECURE_PASSWORD_METHODS";
        /// RFC 6631.
        PskPersist = 16425, "PSK_PERSIST";
        /// RFC 6631.
        PskConfirm = 16426, "PSK_CONFIRM";
        /// RFC 6867.
        ErxSupported = 16427, "ERX_SUPPORTED";
        IfomCapability = 16428, "IFOM_CAPABILITY";
        /// RFC 7383.
        Ikev2FragmentationSupported = 16430, "IKEV2_FRAGMENTATION_SUPPORTED";
        /// RFC 7427.
        SignatureHashAlgorithms = 16431, "SIGNATURE_HASH_ALGORITHMS";
        /// RFC 7791.
        CloneIkeSaSupported = 16432, "CLONE_IKE_SA_SUPPORTED";
        /// RFC 7791.
        CloneIkeSa = 16433, "CLONE_IKE_SA";
        /// RFC 8019.
        Puzzle = 16434, "PUZZLE";
        /// RFC 8784.
        UsePpk = 16435, "USE_PPK";
        /// RFC 8784.
        PpkIdentity = 16436, "PPK_IDENTITY";
        /// RFC 8784.
        NoPpkAuth = 16437, "NO_PPK_AUTH";
        /// RFC 9242.
        IntermediateExchangeSupported = 16438, "INTERMEDIATE_EXCHANGE_SUPPORTED";
        /// RFC 8983.
        Ip4Allowed = 16439, "IP4_ALLOWED";
        /// RFC 8983.
        Ip6Allowed = 16440, "IP6_ALLOWED";
        /// RFC 9370.
        AdditionalKeyExchange = 16441, "ADDITIONAL_KEY_EXCHANGE";
        /// RFC 9347.
        UseAggfrag = 16442, "USE_AGGFRAG";
        /// RFC 9593.
        SupportedAuthMethods = 16443, "SUPPORTED_AUTH_METHODS";
        /// RFC 9611.
        SaResourceInfo = 16444, "SA_RESOURCE_INFO";
        /// RFC 9867.
        UsePpkInt = 16445, "USE_PPK_INT";
        /// RFC 9867.
        PpkIdentityKey = 16446, "PPK_IDENTITY_KEY";

        // Private use (40960 to 65535), after the vendor id of `super::dormancy` only: docs/wire/dormancy.md.
        /// The device goes to sleep.
        DormancySleeping = 53249, "DORMANCY_SLEEPING";
        /// The gateway keeps the SA of a sleeping device.
        DormancyHeld = 53250, "DORMANCY_HELD";
        /// The gateway lets the SA of a sleeping device go to its ticket.
        DormancyReleased = 53251, "DORMANCY_RELEASED";
        /// How long a session takes to come back.
        DormancyLoad = 53252, "DORMANCY_LOAD";
        /// Resumption in one round trip: the sealed part of request and answer.
        DormancyResume = 53253, "DORMANCY_RESUME";
        /// Inside of the sealed part: the SPI of the CHILD SA that comes back.
        DormancyChild = 53254, "DORMANCY_CHILD";
        /// Beside a ticket: the lineage that it belongs to. In IKE_AUTH: the device's former one.
        DormancyLineage = 53255, "DORMANCY_LINEAGE";
        /// A resumed session is deleted at once.
        DormancyRefused = 53256, "DORMANCY_REFUSED";
        /// The session's ticket counts at other gateways of the same name, and this one goes.
        DormancyElsewhere = 53257, "DORMANCY_ELSEWHERE";

        // The same after the vendor id of `super::mlike`: docs/wire/mlike.md.
        /// Keys of the first zone, for a router.
        KeyDistribute = 53265, "KEY_DISTRIBUTE";
        /// The router uses them.
        KeyHeld = 53266, "KEY_HELD";
        /// They are not given, or not taken.
        KeyRefused = 53267, "KEY_REFUSED";
        /// The router is to forget them.
        KeyRevoke = 53268, "KEY_REVOKE";
        /// A router asks the gateway for keys.
        KeyRequest = 53269, "KEY_REQUEST";
        /// A router asks the one where the device was before.
        KeyMigrate = 53270, "KEY_MIGRATE";
        /// The routers next to this one.
        KeyNeighbours = 53271, "KEY_NEIGHBOURS";
    }
}

impl NotifyType {
    /// Whether this is an error: "Types in the range 0 - 16383 are intended for reporting errors" (RFC 7296 section
    /// 3.10.1). An unknown error in a response means that the request failed; an unknown status is ignored.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.code() < 16_384
    }
}

/// A notify payload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notify {
    /// The protocol of the SA that it concerns; [`ProtocolId::None`] if no SA or the IKE SA itself is meant.
    pub protocol: ProtocolId,
    /// SPI of that SA: 4 bytes for AH and ESP, otherwise empty. At most 255 bytes.
    pub spi: Vec<u8>,
    /// What it says.
    pub kind: NotifyType,
    /// Its data.
    pub data: Vec<u8>,
}

impl Notify {
    /// A notification about no particular CHILD SA.
    /// "For all these notifications, the Protocol ID and the SPI Size fields MUST both be sent as 0." (RFC 5723 section 7)
    #[must_use]
    pub fn new(kind: NotifyType, data: impl Into<Vec<u8>>) -> Self {
        Self { protocol: ProtocolId::None, spi: Vec::new(), kind, data: data.into() }
    }

    /// A notification without data about the ESP SA `spi`: REKEY_SA, CHILD_SA_NOT_FOUND.
    #[must_use]
    pub fn about_esp(kind: NotifyType, spi: u32) -> Self {
        Self { protocol: ProtocolId::Esp, spi: spi.to_be_bytes().to_vec(), kind, data: Vec::new() }
    }

    /// The SPI as a number, if it has the 4 bytes of AH and ESP.
    #[must_use]
    pub fn spi_u32(&self) -> Option<u32> {
        <[u8; 4]>::try_from(self.spi.as_slice()).ok().map(u32::from_be_bytes)
    }

    pub(super) fn parse(mut r: Reader<'_>) -> Result<Self> {
        let protocol = ProtocolId::from(r.u8()?);
        let spi_size = usize::from(r.u8()?);
        let kind = NotifyType::from(r.u16()?);
        let spi = r.take(spi_size)?.to_vec();
        Ok(Self { protocol, spi, kind, data: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.protocol.code());
        w.count_u8("notify SPI", self.spi.len());
        w.u16(self.kind.code());
        w.bytes(&self.spi);
        w.bytes(&self.data);
    }
}

/// A delete payload.
/// "Mixing of protocol identifiers MUST NOT be performed in the Delete payload." (RFC 7296 section 3.11)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Delete {
    /// Which kind of SA is deleted. [`ProtocolId::Ike`] means the SA that carries the message, and then `spis` is empty.
    pub protocol: ProtocolId,
    /// The sender's inbound SPIs.
    pub spis: Vec<u32>,
}

impl Delete {
    /// Deletes the IKE SA that carries the message.
    #[must_use]
    pub const fn ike() -> Self {
        Self { protocol: ProtocolId::Ike, spis: Vec::new() }
    }

    /// Deletes ESP SAs by the sender's inbound SPIs.
    #[must_use]
    pub const fn esp(spis: Vec<u32>) -> Self {
        Self { protocol: ProtocolId::Esp, spis }
    }

    pub(super) fn parse(mut r: Reader<'_>) -> Result<Self> {
        let protocol = ProtocolId::from(r.u8()?);
        let spi_size = r.u8()?;
        let count = usize::from(r.u16()?);
        // "It MUST be zero for IKE (SPI is in message header) or four for AH and ESP." (RFC 7296 section 3.11)
        let expected_size = if protocol == ProtocolId::Ike || count == 0 { 0 } else { 4 };
        if spi_size != expected_size && !(count == 0 && spi_size == 4) {
            let expect = if expected_size == 0 { "0 for the IKE SA" } else { "4 for AH and ESP" };
            return Err(Error::Value { what: "delete SPI size", got: spi_size.into(), expect });
        }
        if protocol == ProtocolId::Ike && count != 0 {
            return Err(Error::Value {
                what: "number of SPIs to delete",
                got: count as u64,
                expect: "0 for the IKE SA",
            });
        }
        if count > limits::MAX_DELETED_SPIS {
            return Err(Error::TooMany { what: "SPIs to delete", limit: limits::MAX_DELETED_SPIS });
        }
        let mut list = r.sub("delete SPIs", count * 4)?;
        let mut spis = Vec::with_capacity(count);
        while !list.is_empty() {
            spis.push(list.u32()?);
        }
        r.all()?;
        Ok(Self { protocol, spis })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.protocol.code());
        w.u8(if self.protocol == ProtocolId::Ike { 0 } else { 4 });
        w.count_u16("SPIs to delete", self.spis.len());
        for spi in &self.spis {
            w.u32(*spi);
        }
    }
}
