//! The channels of `daoyou init`: e-mail and a webhook, each with its test.

use daoyou_channels::email::is_address;
use daoyou_channels::email::presets::preset_for_address;

use super::edit::SecretValue;
use super::prompts::{Prompts, check_name, require};
use super::{Comment, Setup, print_faults, report};
use crate::commands::output::{print_note, tr};
use crate::gateway::Inspector;
use crate::home::new_secret;

const CONSENT: Comment = Comment(
    "The owner of the account agrees that its mail is read and answered.",
    "账户的主人同意由道友读取并回复该邮箱的邮件。",
);
const ALLOW: Comment = Comment("Whose mail is answered.", "回复哪些人的邮件。");
const TRUST: Comment = Comment(
    "Senders are proven by DKIM and DMARC, which daoyou checks itself.",
    "由道友自己用 DKIM 和 DMARC 核实发件人。",
);
const OWNER: Comment = Comment(
    "Your own addresses: what comes from them may run commands and change files.",
    "你自己的地址：来自这些地址的消息可以执行命令、修改文件。",
);
const VERIFY: Comment = Comment(
    "How callers prove who they are; here: Authorization: Bearer SECRET.",
    "调用方如何证明身份；此处为 Authorization: Bearer 密钥。",
);

impl Setup<'_> {
    /// Offers e-mail, and tests it with a mail that the account sends to itself.
    pub(super) async fn ask_email(&mut self, prompts: &Prompts) -> anyhow::Result<()> {
        let question = tr("Set up e-mail?", "设置邮件渠道？");
        if self.loaded.config.channels.email.enabled || !prompts.confirm(question, false)? {
            return Ok(());
        }
        self.ask_and_test(prompts, |setup| setup.ask_mail_account(prompts)).await.map(drop)
    }

    /// Asks for the settings of the account, and returns the name of the channel.
    fn ask_mail_account(&mut self, prompts: &Prompts) -> anyhow::Result<String> {
        let address = |text: &str| require(is_address(text), "is not an address", "不是邮箱地址");
        let host = |text: &str| require(!text.is_empty(), "a name is needed", "请填写服务器名");
        let account =
            prompts.text(tr("Address of the assistant's own mailbox:", "助手自己的邮箱地址："), "", address)?;
        let table = |key| ["channels", "email", key];
        let edit = &mut self.edit;
        edit.set(&table("enabled"), true, "");
        match preset_for_address(&account) {
            Some(preset) => print_note(format_args!("{}: {}", preset.name, tr(preset.advice_en, preset.advice_zh))),
            None => {
                let domain = account.rsplit_once('@').map_or("", |(_, domain)| domain);
                let imap = prompts.text(tr("IMAP server:", "IMAP 服务器："), &format!("imap.{domain}"), host)?;
                let smtp = prompts.text(tr("SMTP server:", "SMTP 服务器："), &format!("smtp.{domain}"), host)?;
                edit.set(&table("imap_host"), imap, "");
                edit.set(&table("smtp_host"), smtp, "");
            }
        }
        let password = loop {
            if let Some(password) = prompts.secret(tr("Password or app password:", "密码（授权码或应用专用密码）："))?
            {
                break password;
            }
        };
        let own = prompts.text(
            tr("Your own address, from which you write to it:", "你自己的邮箱地址（用它给助手写信）："),
            "",
            address,
        )?;
        let question = tr(
            "Its mail is read and sent to the model, and answered. Do you agree?",
            "该邮箱的邮件会被读取、发送给模型并得到回复。是否同意？",
        );
        let agrees = prompts.confirm(question, false)?;
        edit.set(&table("address"), account, "");
        edit.set(&table("consent_granted"), agrees, CONSENT.text());
        edit.set_secret(&table("imap_password"), SecretValue::typed("mail.password", password), "");
        edit.set(&table("trust"), "verify", TRUST.text());
        edit.add_to_list(&table("allow_from"), &own, ALLOW.text());
        edit.add_to_list(&["owner", "identities"], &format!("email:{own}"), OWNER.text());
        print_note(tr(
            "The test logs in at both servers and sends a mail from the account to itself.",
            "测试会登录收发两个服务器，并从该邮箱给它自己发一封邮件。",
        ));
        Ok("email".to_owned())
    }

    /// Offers a webhook with its own secret.
    pub(super) async fn ask_webhook(&mut self, prompts: &Prompts) -> anyhow::Result<()> {
        if !prompts
            .confirm(tr("Set up a webhook for scripts and other programs?", "为脚本和其他程序设置 webhook？"), false)?
        {
            return Ok(());
        }
        let known: Vec<String> = self.loaded.config.channels.webhook.keys().cloned().collect();
        let check = |text: &str| {
            check_name(text, text.len() <= 60)?;
            let is_new = known.iter().all(|name| name != text);
            require(is_new, "there is one of this name", "已有同名的 webhook")
        };
        let file_of = |name: &str| format!("webhook-{name}.secret");
        let mut name = String::new();
        let ask = |setup: &mut Self| -> anyhow::Result<String> {
            name = prompts.text(tr("Its name:", "名称："), "inbox", check)?;
            let table = |key| ["channels", "webhook", name.as_str(), key];
            setup.edit.set(&table("verify"), "bearer", VERIFY.text());
            setup.edit.set_secret(&table("secret"), SecretValue::file(file_of(&name), new_secret()?), "");
            Ok(format!("webhook:{name}"))
        };
        if self.ask_and_test(prompts, ask).await? {
            print_note(format_args!(
                "{}:\n  curl -s \"http://{}/webhook/{name}?wait=30\" -H \"Authorization: Bearer $(cat '{}')\" \\\n    \
                 -H 'Content-Type: application/json' -d '{{\"content\": \"What time is it?\"}}'",
                tr("After the start it is called like this", "网关启动后这样调用"),
                self.loaded.config.gateway.listen,
                self.edit.path().with_file_name(file_of(&name)).display(),
            ));
        }
        Ok(())
    }

    /// Sets up a channel with `ask`, which returns the channel's name, and tests it. Returns false if the user leaves the channel
    /// out after a failed test.
    async fn ask_and_test(
        &mut self,
        prompts: &Prompts,
        mut ask: impl FnMut(&mut Self) -> anyhow::Result<String>,
    ) -> anyhow::Result<bool> {
        let original = self.edit.clone();
        let mut name = ask(self)?;
        loop {
            let is_good = match self.candidate() {
                Ok(loaded) => {
                    let inspector = Inspector::offline(self.home.clone(), &loaded)?;
                    report(&inspector.try_channel(&name).await?.1)?
                }
                Err(faults) => {
                    print_faults(&faults);
                    false
                }
            };
            if is_good {
                return Ok(true);
            }
            let entries = [
                tr("try again", "重试"),
                tr("answer the questions again", "重新填写"),
                tr("keep it anyway", "仍然保存"),
                tr("leave this channel out", "不设置这个渠道"),
            ];
            match prompts.select(tr("What now?", "接下来："), &entries.map(str::to_owned), 0)? {
                0 => {}
                1 => {
                    self.edit = original.clone();
                    name = ask(self)?;
                }
                2 => return Ok(true),
                _ => {
                    self.edit = original;
                    return Ok(false);
                }
            }
        }
    }
}
