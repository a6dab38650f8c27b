use super::markdown;

fn plain(html: &str) -> String {
    let (text, is_whole) = markdown(html, 100_000);
    assert!(is_whole);
    text
}

#[test]
fn pages_are_converted_to_markdown() {
    let table = [
        ("<p>Hello <b>big</b> <i>world</i>!</p><p>Second<br>line</p>", "Hello **big** *world*!\n\nSecond\nline"),
        ("one<b> two </b>three<b></b>", "one **two** three"),
        ("<div>a</div><div><br></div><div>b</div>", "a\n\nb"),
        ("<h2>Plan <b>A</b></h2>text", "## Plan A\n\ntext"),
        ("<ul><li>one<li>two<ul><li>deep</li></ul></li></ul>after", "- one\n- two\n  - deep\n\nafter"),
        ("<ol start=3><li>c</li><li><p>d</p><p>e</p></li></ol>", "3. c\n4. d\n\n   e"),
        ("<blockquote>q<br>r<blockquote>s</blockquote></blockquote>t", "> q\n> r\n>\n> > s\n\nt"),
        ("<a href='https://x.org/a b'>here</a>.", "[here](https://x.org/a%20b)."),
        ("<a href=\"https://x.org/\">x.org</a> <a href=mailto:a@b.c>a@b.c</a>", "x.org a@b.c"),
        ("<a href='javascript:alert(1)'>click</a> <a href='data:text/html,x'>me</a>", "click me"),
        ("<a href=' JaVaScRiPt:alert(1)'>click</a><a href=/rel>r</a><a href=https://t.co/></a>", "clickr"),
        ("<a href=https://x.org/1><p>a</p><p>b</p></a>", "a\n\nb (https://x.org/1)"),
        ("Use <code>a  `b`</code>:<pre>x = 1\n  y &lt; 2\n</pre>", "Use ``a `b```:\n\n```\nx = 1\n  y < 2\n```"),
        (
            "<table><tr><th>Item<th>Price</tr><tr><td>Tea | green<td>3 €</table>",
            "| Item | Price |\n| --- | --- |\n| Tea \\| green | 3 € |",
        ),
        (
            "<table><tr><th rowspan=2>Tea<td>green<td>3<tr><td>black<td>2<tr><td>Milk<td>-<td>1</table>",
            "| Tea | green | 3 |\n| --- | --- | --- |\n| Tea | black | 2 |\n| Milk | - | 1 |",
        ),
        ("10<sup>6</sup> m<sup>2</sup>, x<sup>n</sup>, e<sup>-x+1</sup>", "10^6 m^2, x^n, e^(-x+1)"),
        ("the 1<sup>st</sup> of May<sup>[2]</sup>, H<sub>2</sub>O", "the 1st of May[2], H2O"),
        ("<table><tr><td>left<td>right</table>", "left\nright"),
        ("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>", "a\nb\nc\nd"),
        (
            "<table><tr><td><table><tr><td>in<td>ner<tr><td>x<td>y</table></td></tr></table>",
            "| in | ner |\n| --- | --- |\n| x | y |",
        ),
        ("<head><title>T</title><style>p{}</style></head><script>if (a<b) x('</p>')</script>body", "body"),
        ("<!doctype html><!-- <p>no --><!--[if mso]><p>mso</p><![endif]--><![if !mso]>yes<![endif]>", "yes"),
        ("<div style='display:none;font-size:1px'>preheader</div><p hidden>x</p>shown", "shown"),
        ("<div style='max-height: 0px'>a</div><div style='font-size:0'>b<p style='font-size:16px'>c</p>d</div>", "c"),
        (
            "<style><!-- @import 'x'; .h,p.k{display : none}/* .s{display:none} */#i{visibility:hidden} --></style>\
             a<b class='x H'>b</b><p class=k>c</p><div class=k>d<i id=i>e</i></div><span class=s>f</span>",
            "a\nd\nf",
        ),
        ("<style><!-- .h{display:none</style><u class=h>a</u>b", "b"),
        ("<style>@media (max-width:9px){.h{display:none}} .a .h{display:none}</style><u class=h>a</u>", "a"),
        ("a<span style='font-size:1px;color:#fff'>b</span>", "a"),
        (
            "<ul style='font-size:0'>a<li style='font-size:16px'>b<li>c</ul><ol><li style='font-size:0'>d<li>e</ol>",
            "- b\n\n2. e",
        ),
        ("<span style='mso-hide:all'>x</span><span style='opacity:0.9'>y</span>", "y"),
        ("a<img src=https://t.org/p.gif><img width=1 height=1 alt=x src=https://t.org/q>b", "ab"),
        ("<img src=cid:1> <img alt='A chart' src=https://x.org/c.png>", "[image] [image: A chart]"),
        ("a&nbsp;b &amp; c &lt;d&gt; &#x4f60;", "a b & c <d> 你"),
        ("x < y and <3 </> <p", "x < y and <3"),
        (
            "a &amp; b &lt;c&gt; &#20320;&#x597D;&#65 &eacute;&hellip; &;&#; &nosuch; &é;",
            "a & b <c> 你好A é… &;&#; &nosuch; &é;",
        ),
        ("<a href='https://x.org/?a=1&b=2&copy=3'>q</a>&nbsp&nbsp;x&", "[q](https://x.org/?a=1&b=2&copy=3) x&"),
        ("a<script>if (x</b) '</p>'</script class=x>b<xmp><p>no</xmp>c<textarea>d", "abc"),
        ("<font color=red class=a class=gmail_quote hidden=>x</font>y", "y"),
        ("Hi&zwnj;&nbsp;&zwnj;&nbsp;&#8203;there", "Hi\u{200c} there"),
        ("<p>one<p>two</div></p>three", "one\n\ntwo\n\nthree"),
        ("<td>cell</td></table>tail", "cell\ntail"),
        ("<p title='a>b'>x</p><a title=\"unclosed>y", "x"),
        ("<o:p>&nbsp;</o:p><svg><text>no</text></svg>z", "z"),
        ("", ""),
    ];
    for (html, expected) in table {
        assert_eq!(plain(html), expected, "{html}");
    }
}

#[test]
fn large_and_deep_pages_stay_bounded() {
    let deep = ["<div>", "<b>", "<blockquote>", "<table><tr><td>", "<ul><li>", "<font a>", "<p><b c=1>", "<svg>"];
    for tag in deep {
        let html = tag.repeat(100_000) + "text";
        let started = std::time::Instant::now();
        let (text, _) = markdown(&html, 10_000);
        assert!(text.len() <= 20_000, "{tag}: {}", text.len());
        assert!(started.elapsed().as_secs() < 20, "{tag}: {:?}", started.elapsed());
    }
    let hostile = [
        "<b x>".repeat(50_000) + &"<p>x".repeat(50_000),
        "<a href=https://x.org/>".repeat(100_000) + "x",
        "<p ".to_owned() + &"a=1 ".repeat(300_000),
        "<!--".repeat(300_000),
        "<script>".repeat(100_000),
        "</".repeat(300_000),
        "&".repeat(500_000),
        "<table>".to_owned() + &"<tr><td>a<td>b".repeat(50_000),
        "<td colspan=999999999>".repeat(1_000),
        "<br>".repeat(300_000),
        (0..200_000).map(|n| format!("a{n}=1 ")).fold("<p ".to_owned(), |tag, attribute| tag + &attribute) + ">x",
        "<p class=a class=b>".repeat(50_000),
        "<blockquote>x<br>".repeat(10_000),
        "<style>".to_owned() + &".a{".repeat(30_000) + "</style>" + &"<p class=a>".repeat(50_000),
        "<style>".to_owned() + &".a,.b{display:none}/*".repeat(9_000) + "</style>" + &"<p class='a b'>x".repeat(50_000),
    ];
    for html in hostile {
        let started = std::time::Instant::now();
        let (text, _) = markdown(&html, 50_000);
        assert!(text.len() <= 120_000, "{}: {}", &html[..20], text.len());
        assert!(started.elapsed().as_secs() < 20, "{}: {:?}", &html[..20], started.elapsed());
    }
}
