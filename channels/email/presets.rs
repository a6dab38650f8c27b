//! The known mail providers by the domain of an address: their servers, and how to log in. The facts come from the
//! providers' own help pages.

use super::config::Tls;

/// The address of a server. Its host, port and TLS belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddress<'a> {
    pub host: &'a str,
    pub port: u16,
    pub tls: Tls,
}

/// The usual settings of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// The domains of its addresses, in lower case.
    pub domains: &'static [&'static str],
    pub imap: ServerAddress<'static>,
    pub smtp: ServerAddress<'static>,
    /// The authserv-id that the provider's servers write in `Authentication-Results`, if it is a single, stable name; otherwise empty.
    pub authserv_id: &'static str,
    /// The steps that the owner must take before a program may log in, as sentences.
    pub advice_en: &'static str,
    pub advice_zh: &'static str,
}

/// Returns the provider of an address, by its domain.
pub fn preset_for_address(address: &str) -> Option<&'static Preset> {
    let (_, domain) = address.trim().trim_end_matches('>').rsplit_once('@')?;
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    PRESETS.iter().find(|preset| preset.domains.contains(&domain.as_str()))
}

/// Returns the provider of a server, for addresses with a custom domain at that provider.
pub fn preset_for_host(host: &str) -> Option<&'static Preset> {
    // Only loopback is the server of several presets, and it identifies no provider.
    let host = host.trim().trim_end_matches('.').to_ascii_lowercase();
    let known = |preset: &&Preset| preset.imap.host == host || preset.smtp.host == host;
    PRESETS.iter().filter(|preset| preset.imap.host != LOOPBACK).find(known)
}

const LOOPBACK: &str = "127.0.0.1";

/// Returns a provider with its name and servers only, both servers with implicit TLS.
const fn provider(name: &'static str, imap_host: &'static str, smtp_host: &'static str) -> Preset {
    Preset {
        name,
        domains: &[],
        imap: ServerAddress { host: imap_host, port: 993, tls: Tls::Implicit },
        smtp: ServerAddress { host: smtp_host, port: 465, tls: Tls::Implicit },
        authserv_id: "",
        advice_en: "",
        advice_zh: "",
    }
}

impl Preset {
    const fn for_domains(self, domains: &'static [&'static str]) -> Self {
        Self { domains, ..self }
    }

    const fn submission(self) -> Self {
        Self { smtp: ServerAddress { port: 587, tls: Tls::Starttls, ..self.smtp }, ..self }
    }

    const fn authserv(self, authserv_id: &'static str) -> Self {
        Self { authserv_id, ..self }
    }

    const fn advice(self, advice_en: &'static str, advice_zh: &'static str) -> Self {
        Self { advice_en, advice_zh, ..self }
    }
}

const NETEASE_EN: &str = "Switch on IMAP/SMTP in the mailbox's web settings (POP3/SMTP/IMAP), where it shows an authorization \
     code once: that code is the password here, not the one of the web page.";
const NETEASE_ZH: &str = "请在网页邮箱的“设置 → POP3/SMTP/IMAP”里开启 IMAP/SMTP 服务，并把当时显示一次的“授权码”作为密码；网页登录密码不能用。";

static PRESETS: [Preset; 27] = [
    provider("Gmail", "imap.gmail.com", "smtp.gmail.com")
        .for_domains(&["gmail.com", "googlemail.com"])
        .authserv("mx.google.com")
        .advice(
            "Google takes no account password. Switch on 2-Step Verification and make an app password at \
             https://myaccount.google.com/apppasswords, or use OAuth 2 by token_command.",
            "Google 不接受账号密码。请先开启两步验证，再到 https://myaccount.google.com/apppasswords 生成“应用专用密码”，\
             或用 token_command 走 OAuth 2。",
        ),
    provider("Outlook.com", "outlook.office365.com", "smtp-mail.outlook.com")
        .for_domains(&[
            "outlook.com", "hotmail.com", "live.com", "msn.com", "outlook.de", "outlook.fr", "outlook.es", "outlook.it",
            "outlook.jp", "hotmail.co.uk", "hotmail.de", "hotmail.fr", "hotmail.it", "hotmail.es", "live.cn", "live.co.uk",
            "live.de", "live.fr", "live.nl",
        ])
        .submission()
        .advice(
            "Microsoft takes no passwords, app passwords neither, but OAuth 2 alone: set token_command to a program that \
             prints an access token (scopes IMAP.AccessAsUser.All and SMTP.Send), and switch on IMAP in the settings of \
             outlook.com.",
            "微软不再接受任何密码（应用密码也不行），只接受 OAuth 2：请把 token_command 设为能打印访问令牌的程序（权限 \
             IMAP.AccessAsUser.All 和 SMTP.Send），并在 outlook.com 的设置里开启 IMAP。",
        ),
    provider("Microsoft 365", "outlook.office365.com", "smtp.office365.com").for_domains(&["onmicrosoft.com", "office365.com"]).submission().advice(
        "Microsoft takes no passwords but OAuth 2 alone: set token_command to a program that prints an access token (scopes \
         IMAP.AccessAsUser.All and SMTP.Send). The administrator has to allow IMAP and authenticated SMTP for this mailbox.",
        "微软不再接受密码，只接受 OAuth 2：请把 token_command 设为能打印访问令牌的程序（权限 IMAP.AccessAsUser.All 和 SMTP.Send）；\
         管理员还须为该邮箱允许 IMAP 和经过身份验证的 SMTP。",
    ),
    provider("QQ Mail", "imap.qq.com", "smtp.qq.com").for_domains(&["qq.com", "vip.qq.com", "foxmail.com"]).authserv("mx.qq.com").advice(
        "Switch on IMAP/SMTP in the web settings (Account, POP3/IMAP/SMTP) and make an authorization code: that code is the \
         password here, not the one of QQ.",
        "请在网页邮箱的“设置 → 账号 → POP3/IMAP/SMTP 服务”里开启 IMAP/SMTP，并生成“授权码”作为密码；QQ 密码不能用。",
    ),
    provider("Tencent Exmail", "imap.exmail.qq.com", "smtp.exmail.qq.com").for_domains(&["exmail.qq.com"]).advice(
        "Switch on IMAP/SMTP in the web settings (Settings, Client) and make a password for clients there where the company \
         demands one.",
        "请在网页邮箱的“设置 → 客户端设置”里开启 IMAP/SMTP；若企业开启了安全登录，请在那里生成“客户端专用密码”作为密码。",
    ),
    provider("163", "imap.163.com", "smtp.163.com").for_domains(&["163.com"]).advice(NETEASE_EN, NETEASE_ZH),
    provider("163 VIP", "imap.vip.163.com", "smtp.vip.163.com").for_domains(&["vip.163.com"]).advice(NETEASE_EN, NETEASE_ZH),
    provider("126", "imap.126.com", "smtp.126.com").for_domains(&["126.com"]).advice(NETEASE_EN, NETEASE_ZH),
    provider("yeah.net", "imap.yeah.net", "smtp.yeah.net").for_domains(&["yeah.net"]).advice(NETEASE_EN, NETEASE_ZH),
    provider("NetEase for companies", "imap.qiye.163.com", "smtp.qiye.163.com").for_domains(&["qiye.163.com"]).advice(
        "Switch on IMAP/SMTP in the web settings, and make an authorization code for clients there where the company demands \
         one.",
        "请在网页邮箱设置里开启 IMAP/SMTP；若企业要求，请在那里生成“客户端授权码”作为密码。",
    ),
    provider("Aliyun Mail", "imap.aliyun.com", "smtp.aliyun.com").for_domains(&["aliyun.com"]).advice(
        "Allow IMAP/SMTP for clients in the web settings; where it offers a password for clients, that is the password here.",
        "请在网页邮箱的设置里允许客户端使用 IMAP/SMTP；如提供“客户端专用密码”，请用它作为密码。",
    ),
    provider("Aliyun Mail for companies", "imap.qiye.aliyun.com", "smtp.qiye.aliyun.com").for_domains(&["qiye.aliyun.com"]).advice(
        "Make a password for clients in the web settings (Account and security): where it is switched on, the password of the \
         web page is refused.",
        "请在网页邮箱的“设置 → 账户与安全”里生成“客户端授权密码”作为密码；开启后网页登录密码不能用。",
    ),
    provider("Sina Mail", "imap.sina.com", "smtp.sina.com").for_domains(&["sina.com"]).advice(SINA_EN, SINA_ZH),
    provider("Sina Mail", "imap.sina.cn", "smtp.sina.cn").for_domains(&["sina.cn"]).advice(SINA_EN, SINA_ZH),
    provider("139 Mail", "imap.139.com", "smtp.139.com").for_domains(&["139.com"]).advice(
        "Switch on IMAP/SMTP in the web settings and make an authorization code: that code is the password here.",
        "请在网页邮箱的“设置 → 账户 → POP3/SMTP/IMAP”里开启 IMAP/SMTP，并生成“授权码”作为密码。",
    ),
    provider("Sohu Mail", "imap.sohu.com", "smtp.sohu.com").for_domains(&["sohu.com"]).advice(
        "Switch on IMAP/SMTP in the web settings and make a password for clients: that is the password here.",
        "请在网页邮箱的“选项 → 设置 → POP3/SMTP/IMAP”里开启 IMAP/SMTP，并生成“独立密码”作为密码。",
    ),
    provider("iCloud Mail", "imap.mail.me.com", "smtp.mail.me.com").for_domains(&["icloud.com", "me.com", "mac.com"]).submission().advice(
        "Apple takes an app-specific password alone: make one at https://account.apple.com (Sign-In and Security). Where the \
         whole address is refused as the user's name, try the part before the @.",
        "苹果只接受“App 专用密码”：请在 https://account.apple.com 的“登录与安全”里生成。若完整地址作为用户名被拒绝，请改用 @ 前面的部分。",
    ),
    provider("Yahoo Mail", "imap.mail.yahoo.com", "smtp.mail.yahoo.com")
        .for_domains(&[
            "yahoo.com", "ymail.com", "rocketmail.com", "yahoo.co.uk", "yahoo.de", "yahoo.fr", "yahoo.es", "yahoo.it",
            "yahoo.ca", "yahoo.com.au", "yahoo.com.br", "yahoo.co.in", "yahoo.in", "yahoo.com.hk", "yahoo.com.tw",
            "yahoo.com.sg",
        ])
        .advice(APP_PASSWORD_EN, APP_PASSWORD_ZH),
    provider("AOL Mail", "imap.aol.com", "smtp.aol.com").for_domains(&["aol.com"]).advice(APP_PASSWORD_EN, APP_PASSWORD_ZH),
    provider("Fastmail", "imap.fastmail.com", "smtp.fastmail.com")
        .for_domains(&["fastmail.com", "fastmail.fm", "fastmail.net", "fastmail.org", "sent.com", "messagingengine.com"])
        .advice(
            "Make an app password with access to mail (IMAP/SMTP) in Settings, Privacy & Security: that is the password here.",
            "请在 Settings → Privacy & Security 里生成可访问邮件（IMAP/SMTP）的应用密码，并用它作为密码。",
        ),
    provider("Zoho Mail", "imap.zoho.com", "smtp.zoho.com").for_domains(&["zoho.com", "zohomail.com"]).authserv("mx.zohomail.com").advice(
        "Switch on IMAP in the mail settings; with two-factor authentication make an app password. Accounts of a company use \
         imappro.zoho.com and smtppro.zoho.com, those in the EU, India and China .eu, .in and .com.cn.",
        "请在邮箱设置里开启 IMAP；启用了双重验证时请生成应用专用密码。企业账号用 imappro.zoho.com 和 smtppro.zoho.com；欧洲、印度、中国\
         的账号以 .eu、.in、.com.cn 结尾。",
    ),
    provider("GMX", "imap.gmx.net", "mail.gmx.net").for_domains(&["gmx.net", "gmx.de", "gmx.at", "gmx.ch"]).authserv("gmx.net").advice(GMX_EN, GMX_ZH),
    provider("GMX", "imap.gmx.com", "mail.gmx.com").for_domains(&["gmx.com", "gmx.us", "gmx.co.uk"]).advice(GMX_EN, GMX_ZH),
    provider("WEB.DE", "imap.web.de", "smtp.web.de").for_domains(&["web.de"]).submission().advice(GMX_EN, GMX_ZH),
    provider("Mail.ru", "imap.mail.ru", "smtp.mail.ru").for_domains(&["mail.ru", "inbox.ru", "bk.ru", "list.ru", "internet.ru"]).advice(
        "Mail.ru takes a password for external applications alone: make one in the account's security settings.",
        "Mail.ru 只接受“外部应用密码”：请在账号的安全设置里生成。",
    ),
    provider("Yandex Mail", "imap.yandex.com", "smtp.yandex.com")
        .for_domains(&["yandex.com", "yandex.ru", "ya.ru", "yandex.by", "yandex.kz"])
        .advice(
            "Allow IMAP in the mail settings (Email clients) and make an app password at https://id.yandex.com: that is the \
             password here.",
            "请在邮箱设置的 Email clients 里允许 IMAP，并到 https://id.yandex.com 生成应用密码作为密码。",
        ),
    Preset {
        imap: ServerAddress { host: LOOPBACK, port: 1143, tls: Tls::Starttls },
        smtp: ServerAddress { host: LOOPBACK, port: 1025, tls: Tls::Starttls },
        ..provider("Proton Mail Bridge", LOOPBACK, LOOPBACK)
    }
    .for_domains(&["proton.me", "protonmail.com", "protonmail.ch", "pm.me"])
    .advice(
        "Proton is read by its Bridge on this machine alone (a paid plan): start it, use the user's name and password that it \
         shows, and give its exported certificate as ca_file.",
        "Proton 只能通过本机运行的 Proton Mail Bridge（付费计划）读取：请启动它，使用它显示的用户名和密码，并把它导出的证书设为 ca_file。",
    ),
];

const SINA_EN: &str = "Switch on IMAP4/SMTP in the web settings (Client POP/IMAP/SMTP) and make an authorization code: that code \
     is the password here.";
const SINA_ZH: &str = "请在网页邮箱的“设置区 → 客户端 pop/imap/smtp”里开启 IMAP4/SMTP，并生成“授权码”作为密码。";
const APP_PASSWORD_EN: &str =
    "Make an app password in the account's security settings: the password of the web page is refused here.";
const APP_PASSWORD_ZH: &str = "请在账号的安全设置里生成“应用密码”作为密码；网页登录密码不能用。";
const GMX_EN: &str = "Allow POP3 and IMAP in the web settings; with two-factor authentication make an app password.";
const GMX_ZH: &str = "请在网页邮箱设置里允许 POP3 和 IMAP；启用了双重验证时请生成应用密码。";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_identifies_the_provider() {
        let table = [
            ("me@gmail.com", Some("imap.gmail.com")),
            (" Me@GMail.com. ", Some("imap.gmail.com")),
            ("\"a@163.com\"@qq.com", Some("imap.qq.com")),
            ("x@foxmail.com", Some("imap.qq.com")),
            ("x@vip.163.com", Some("imap.vip.163.com")),
            ("x@mail.163.com", None),
            ("x@notgmail.com", None),
            ("gmail.com", None),
            ("", None),
        ];
        for (address, host) in table {
            assert_eq!(preset_for_address(address).map(|preset| preset.imap.host), host, "{address:?}");
        }
        assert_eq!(preset_for_host("IMAP.exmail.qq.com").map(|preset| preset.name), Some("Tencent Exmail"));
        assert_eq!(preset_for_host("127.0.0.1"), None);
    }

    #[test]
    fn every_preset_is_complete_and_no_domain_occurs_twice() {
        let mut seen = std::collections::HashSet::new();
        for preset in &PRESETS {
            for text in [preset.name, preset.imap.host, preset.smtp.host, preset.advice_en, preset.advice_zh] {
                assert!(!text.is_empty(), "{preset:?}");
            }
            assert!(!preset.advice_en.contains("  ") && !preset.advice_zh.contains("  "), "{preset:?}");
            assert!(preset.imap.tls != Tls::None && preset.smtp.tls != Tls::None, "{preset:?}");
            for domain in preset.domains {
                assert!(seen.insert(domain) && *domain == domain.to_ascii_lowercase(), "{domain}");
            }
        }
    }
}
