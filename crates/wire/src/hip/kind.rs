//! Code points of HIP: packet types, parameter types, notifications. Owns their numbers and names; must never read a packet.

use crate::codec::code_points;

code_points! {
    /// Packet types (RFC 7401 section 5.3).
    pub enum PacketType: u8 {
        I1 = 1, "I1";
        R1 = 2, "R1";
        I2 = 3, "I2";
        R2 = 4, "R2";
        Update = 16, "UPDATE";
        Notify = 17, "NOTIFY";
        Close = 18, "CLOSE";
        CloseAck = 19, "CLOSE_ACK";
    }
}

code_points! {
    /// Parameter types. Those of RFC 5201 and RFC 7401 with equal numbers have the newer name. An odd type is critical. The
    /// DORMANCY types and ESP_IN_UDP are private (RFC 7401 section 5.2.1; `docs/wire/dormancy.md`, `docs/wire/hip-udp.md`).
    pub enum ParamType: u16 {
        EspInfo = 65, "ESP_INFO";
        R1CounterV1 = 128, "R1_COUNTER (HIPv1)";
        R1Counter = 129, "R1_COUNTER";
        LocatorSet = 193, "LOCATOR_SET";
        Puzzle = 257, "PUZZLE";
        Solution = 321, "SOLUTION";
        Seq = 385, "SEQ";
        Ack = 449, "ACK";
        DhGroupList = 511, "DH_GROUP_LIST";
        DiffieHellman = 513, "DIFFIE_HELLMAN";
        HipTransform = 577, "HIP_TRANSFORM";
        HipCipher = 579, "HIP_CIPHER";
        NatTraversalMode = 608, "NAT_TRAVERSAL_MODE";
        TransactionPacing = 610, "TRANSACTION_PACING";
        Encrypted = 641, "ENCRYPTED";
        HostId = 705, "HOST_ID";
        HitSuiteList = 715, "HIT_SUITE_LIST";
        Cert = 768, "CERT";
        Notification = 832, "NOTIFICATION";
        EchoRequestSigned = 897, "ECHO_REQUEST_SIGNED";
        RegInfo = 930, "REG_INFO";
        RegRequest = 932, "REG_REQUEST";
        RegResponse = 934, "REG_RESPONSE";
        RegFailed = 936, "REG_FAILED";
        RegFrom = 950, "REG_FROM";
        EchoResponseSigned = 961, "ECHO_RESPONSE_SIGNED";
        TransportFormatList = 2049, "TRANSPORT_FORMAT_LIST";
        EspTransform = 4095, "ESP_TRANSFORM";
        RelayedAddress = 4650, "RELAYED_ADDRESS";
        MappedAddress = 4660, "MAPPED_ADDRESS";
        PeerPermission = 4680, "PEER_PERMISSION";
        CandidatePriority = 4700, "CANDIDATE_PRIORITY";
        Nominate = 4710, "NOMINATE";
        Dormancy = 45610, "DORMANCY";
        DormancySleeping = 45612, "DORMANCY_SLEEPING";
        DormancyHeld = 45614, "DORMANCY_HELD";
        EspInUdp = 45616, "ESP_IN_UDP";
        HipMac = 61505, "HIP_MAC";
        HipMac2 = 61569, "HIP_MAC_2";
        HipSignature2 = 61633, "HIP_SIGNATURE_2";
        HipSignature = 61697, "HIP_SIGNATURE";
        EchoResponseUnsigned = 63425, "ECHO_RESPONSE_UNSIGNED";
        EchoRequestUnsigned = 63661, "ECHO_REQUEST_UNSIGNED";
        RelayFrom = 63998, "RELAY_FROM";
        RelayTo = 64002, "RELAY_TO";
        From = 65498, "FROM";
        RvsHmac = 65500, "RVS_HMAC";
        ViaRvs = 65502, "VIA_RVS";
        RelayHmac = 65520, "RELAY_HMAC";
    }
}

impl ParamType {
    /// Whether a receiver that does not know it must stop at it.
    /// "The C-bit is considered to be a part of the Type field. Consequently, critical parameters are always odd" (RFC 7401
    /// section 5.2.1)
    #[must_use]
    pub const fn is_critical(self) -> bool {
        self.code() & 1 == 1
    }
}

code_points! {
    /// Notify message types (RFC 7401 section 5.2.19, RFC 7402 section 5.1.3, RFC 8046 section 4.3, RFC 9028 section 5.10). Below
    /// 16,384: errors.
    pub enum NotifyType: u16 {
        UnsupportedCriticalParameterType = 1, "UNSUPPORTED_CRITICAL_PARAMETER_TYPE";
        InvalidSyntax = 7, "INVALID_SYNTAX";
        NoDhProposalChosen = 14, "NO_DH_PROPOSAL_CHOSEN";
        InvalidDhChosen = 15, "INVALID_DH_CHOSEN";
        NoHipProposalChosen = 16, "NO_HIP_PROPOSAL_CHOSEN";
        InvalidHipCipherChosen = 17, "INVALID_HIP_CIPHER_CHOSEN";
        NoEspProposalChosen = 18, "NO_ESP_PROPOSAL_CHOSEN";
        InvalidEspTransformChosen = 19, "INVALID_ESP_TRANSFORM_CHOSEN";
        UnsupportedHitSuite = 20, "UNSUPPORTED_HIT_SUITE";
        AuthenticationFailed = 24, "AUTHENTICATION_FAILED";
        ChecksumFailed = 26, "CHECKSUM_FAILED";
        HipMacFailed = 28, "HIP_MAC_FAILED";
        EncryptionFailed = 32, "ENCRYPTION_FAILED";
        InvalidHit = 40, "INVALID_HIT";
        BlockedByPolicy = 42, "BLOCKED_BY_POLICY";
        ResponderBusyPleaseRetry = 44, "RESPONDER_BUSY_PLEASE_RETRY";
        LocatorTypeUnsupported = 46, "LOCATOR_TYPE_UNSUPPORTED";
        NoValidNatTraversalMode = 60, "NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER";
        ConnectivityChecksFailed = 61, "CONNECTIVITY_CHECKS_FAILED";
        MessageNotRelayed = 62, "MESSAGE_NOT_RELAYED";
        ServerReflexiveCandidateAllocationFailed = 63, "SERVER_REFLEXIVE_CANDIDATE_ALLOCATION_FAILED";
        RvsHmacProhibitedWithRelay = 64, "RVS_HMAC_PROHIBITED_WITH_RELAY";
        I2Acknowledgement = 16384, "I2_ACKNOWLEDGEMENT";
        NatKeepalive = 16385, "NAT_KEEPALIVE";
    }
}

impl NotifyType {
    /// Whether it reports an error; the others tell of a status.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.code() < 16_384
    }
}
