//! Every sentence of the pages, in every language.
//!
//! A text with `{}` has a name put in its place.

use std::collections::BTreeMap;

/// How a text marks the place of a name.
pub const PLACE: &str = "{}";

macro_rules! texts {
    ($($(#[$doc:meta])* pub $name:ident: &'static str,)*) => {
        /// The texts of one language, borrowed from whoever keeps them: this file, or a theme.
        #[derive(Clone, Copy, Debug)]
        pub struct Text<'a> {
            $($(#[$doc])* pub $name: &'a str,)*
        }

        impl<'a> Text<'a> {
            /// Every text with its name, in the order of the pages.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// These texts, with others in the place of some.
            #[must_use]
            pub fn with(mut self, others: &'a BTreeMap<String, String>) -> Self {
                $(if let Some(other) = others.get(stringify!($name)) {
                    self.$name = other;
                })*
                self
            }
        }
    };
}

texts! {
    /// Heading and button of the sign-in page.
    pub sign_in: &'static str,
    /// Which application asked for the sign-in; `{}` is its name.
    pub sign_in_to: &'static str,
    /// Label.
    pub user_name: &'static str,
    /// Label.
    pub password: &'static str,
    /// Button that goes on with the present session; `{}` is the user.
    pub continue_as: &'static str,
    /// Between that button and the sign-in form.
    pub other_account: &'static str,
    /// The sign-in failed: wrong password, unknown or disabled user.
    pub problem_credentials: &'static str,
    /// The sign-in was not looked at: too many attempts.
    pub problem_throttled: &'static str,
    /// The sign-in was not looked at: too much to do.
    pub problem_busy: &'static str,
    /// The form was too old.
    pub problem_expired: &'static str,
    /// Between the sign-in form and the providers.
    pub other_way: &'static str,
    /// Link that leads to a provider; `{}` is its name.
    pub continue_with: &'static str,
    /// The user turned round at the provider.
    pub problem_provider_cancelled: &'static str,
    /// The provider's word does not count.
    pub problem_provider_failed: &'static str,
    /// The provider does not answer.
    pub problem_provider_unavailable: &'static str,
    /// The provider vouches for somebody who is no user here.
    pub problem_not_admitted: &'static str,
    /// Heading.
    pub consent_title: &'static str,
    /// Before the list of scopes; `{}` is the application.
    pub consent_lead: &'static str,
    /// Who is signed in; `{}` is the user.
    pub consent_user: &'static str,
    /// After it: a warning.
    pub consent_trust: &'static str,
    /// Button.
    pub allow: &'static str,
    /// Button.
    pub deny: &'static str,
    /// What the scope `openid` gives.
    pub scope_openid: &'static str,
    /// What the scope `profile` gives.
    pub scope_profile: &'static str,
    /// What the scope `email` gives.
    pub scope_email: &'static str,
    /// What the scope `phone` gives.
    pub scope_phone: &'static str,
    /// What the scope `address` gives.
    pub scope_address: &'static str,
    /// What the scope `offline_access` gives.
    pub scope_offline_access: &'static str,
    /// Heading.
    pub logout_title: &'static str,
    /// Who is signed in; `{}` is the user.
    pub logout_user: &'static str,
    /// What signing out does, and how not to.
    pub logout_lead: &'static str,
    /// Button.
    pub sign_out: &'static str,
    /// Heading.
    pub logged_out_title: &'static str,
    /// What to do next.
    pub logged_out_lead: &'static str,
    /// Heading: the request is at fault.
    pub error_request: &'static str,
    /// Heading: there is no such page.
    pub error_not_found: &'static str,
    /// Heading: too much to do.
    pub error_busy: &'static str,
    /// Heading: the service is at fault.
    pub error_server: &'static str,
    /// What the reader can do.
    pub error_advice: &'static str,
    /// Label.
    pub request_id: &'static str,
    /// Heading.
    pub form_post_title: &'static str,
    /// What is happening, and what to do if nothing does.
    pub form_post_lead: &'static str,
    /// Button.
    pub proceed: &'static str,
    /// Heading.
    pub home_title: &'static str,
    /// What the development server is for.
    pub home_lead: &'static str,
    /// Who can sign in; `{}` is the example user.
    pub home_user: &'static str,
    /// Where the example user's password is.
    pub home_password: &'static str,
    /// Heading.
    pub home_endpoints: &'static str,
    /// Heading.
    pub tokens_title: &'static str,
    /// What the page shows.
    pub tokens_lead: &'static str,
    /// Heading: a token's JOSE header.
    pub token_header: &'static str,
    /// Heading: a token's claims.
    pub token_payload: &'static str,
    /// Label: a token as it was sent.
    pub token_raw: &'static str,
    /// Heading: the answer of the token endpoint.
    pub token_response: &'static str,
}

/// English.
pub static EN: Text<'static> = Text {
    sign_in: "Sign in",
    sign_in_to: "to continue to {}",
    user_name: "User name or email",
    password: "Password",
    continue_as: "Continue as {}",
    other_account: "or use another account",
    problem_credentials: "That user name and password do not match. Check both and try again.",
    problem_throttled: "Too many attempts. Wait a few minutes, then try again.",
    problem_busy: "Many people are signing in right now. Wait a moment, then try again.",
    problem_expired: "This form was open for too long. Sign in once more.",
    other_way: "or",
    continue_with: "Continue with {}",
    problem_provider_cancelled: "The sign-in with the other provider was cancelled. Try again, or choose another way.",
    problem_provider_failed: "The sign-in with the other provider did not work. Try again; if it happens again, tell the people who run this service.",
    problem_provider_unavailable: "The other provider cannot be reached right now. Wait a moment, then try again.",
    problem_not_admitted: "There is no account here for you at that provider. Ask the people who run this service for one.",
    consent_title: "Allow access?",
    consent_lead: "{} is asking to:",
    consent_user: "You are signed in as {}.",
    consent_trust: "Allow this only if you trust the application.",
    allow: "Allow",
    deny: "Deny",
    scope_openid: "Know who you are",
    scope_profile: "See your name and profile",
    scope_email: "See your email address",
    scope_phone: "See your phone number",
    scope_address: "See your postal address",
    scope_offline_access: "Keep this access while you are away",
    logout_title: "Sign out?",
    logout_user: "You are signed in as {}.",
    logout_lead: "Signing out ends your session in this browser. To stay signed in, close this page.",
    sign_out: "Sign out",
    logged_out_title: "You are signed out",
    logged_out_lead: "You can close this page now.",
    error_request: "Request error",
    error_not_found: "Page not found",
    error_busy: "Too many requests",
    error_server: "Something went wrong",
    error_advice: "Go back to the application and try again. If it happens again, send the request ID to the people who run the application.",
    request_id: "Request ID",
    form_post_title: "One moment",
    form_post_lead: "You are on your way back to the application. If nothing happens, press the button.",
    proceed: "Continue",
    home_title: "Development server",
    home_lead: "This server is for trying things out on this machine. It signs you in with an example application and shows the tokens.",
    home_user: "The example user is {}.",
    home_password: "The password was printed when the server started.",
    home_endpoints: "Endpoints",
    tokens_title: "Tokens",
    tokens_lead: "This is what the example application received.",
    token_header: "Header",
    token_payload: "Claims",
    token_raw: "As it was sent",
    token_response: "Token response",
};

/// German.
pub static DE: Text<'static> = Text {
    sign_in: "Anmelden",
    sign_in_to: "um fortzufahren zu {}",
    user_name: "Benutzername oder E-Mail-Adresse",
    password: "Passwort",
    continue_as: "Weiter als {}",
    other_account: "oder ein anderes Konto verwenden",
    problem_credentials: "Benutzername und Passwort passen nicht zusammen. Prüfen Sie beides und versuchen Sie es noch einmal.",
    problem_throttled: "Zu viele Versuche. Warten Sie einige Minuten und versuchen Sie es dann noch einmal.",
    problem_busy: "Gerade melden sich viele Personen an. Warten Sie einen Moment und versuchen Sie es dann noch einmal.",
    problem_expired: "Dieses Formular war zu lange geöffnet. Melden Sie sich bitte noch einmal an.",
    other_way: "oder",
    continue_with: "Weiter mit {}",
    problem_provider_cancelled: "Die Anmeldung beim anderen Anbieter wurde abgebrochen. Versuchen Sie es noch einmal oder wählen Sie einen anderen Weg.",
    problem_provider_failed: "Die Anmeldung beim anderen Anbieter hat nicht geklappt. Versuchen Sie es noch einmal; geschieht es wieder, sagen Sie es den Betreibern dieses Dienstes.",
    problem_provider_unavailable: "Der andere Anbieter ist gerade nicht erreichbar. Warten Sie einen Moment und versuchen Sie es dann noch einmal.",
    problem_not_admitted: "Für Sie bei diesem Anbieter gibt es hier kein Konto. Bitten Sie die Betreiber dieses Dienstes um eines.",
    consent_title: "Zugriff erlauben?",
    consent_lead: "{} bittet um Erlaubnis für Folgendes:",
    consent_user: "Sie sind als {} angemeldet.",
    consent_trust: "Erlauben Sie den Zugriff nur, wenn Sie der Anwendung vertrauen.",
    allow: "Erlauben",
    deny: "Ablehnen",
    scope_openid: "Wissen, wer Sie sind",
    scope_profile: "Ihren Namen und Ihr Profil sehen",
    scope_email: "Ihre E-Mail-Adresse sehen",
    scope_phone: "Ihre Telefonnummer sehen",
    scope_address: "Ihre Postanschrift sehen",
    scope_offline_access: "Den Zugriff behalten, während Sie abwesend sind",
    logout_title: "Abmelden?",
    logout_user: "Sie sind als {} angemeldet.",
    logout_lead: "Mit der Abmeldung endet Ihre Sitzung in diesem Browser. Um angemeldet zu bleiben, schließen Sie diese Seite.",
    sign_out: "Abmelden",
    logged_out_title: "Sie sind abgemeldet",
    logged_out_lead: "Sie können diese Seite jetzt schließen.",
    error_request: "Fehlerhafte Anfrage",
    error_not_found: "Seite nicht gefunden",
    error_busy: "Zu viele Anfragen",
    error_server: "Etwas ist schiefgegangen",
    error_advice: "Gehen Sie zurück zur Anwendung und versuchen Sie es noch einmal. Tritt der Fehler wieder auf, senden Sie die Anfragenummer an die Betreiber der Anwendung.",
    request_id: "Anfragenummer",
    form_post_title: "Einen Moment",
    form_post_lead: "Sie werden zur Anwendung zurückgeleitet. Falls nichts geschieht, drücken Sie die Schaltfläche.",
    proceed: "Weiter",
    home_title: "Entwicklungsserver",
    home_lead: "Dieser Server dient zum Ausprobieren auf diesem Rechner. Er meldet Sie mit einer Beispielanwendung an und zeigt die Tokens.",
    home_user: "Der Beispielbenutzer heißt {}.",
    home_password: "Das Passwort wurde beim Start des Servers ausgegeben.",
    home_endpoints: "Endpunkte",
    tokens_title: "Tokens",
    tokens_lead: "Das hat die Beispielanwendung erhalten.",
    token_header: "Header",
    token_payload: "Claims",
    token_raw: "Wie gesendet",
    token_response: "Token-Antwort",
};

/// French.
pub static FR: Text<'static> = Text {
    sign_in: "Se connecter",
    sign_in_to: "pour continuer vers {}",
    user_name: "Nom d’utilisateur ou adresse e-mail",
    password: "Mot de passe",
    continue_as: "Continuer en tant que {}",
    other_account: "ou utiliser un autre compte",
    problem_credentials: "Ce nom d’utilisateur et ce mot de passe ne correspondent pas. Vérifiez-les, puis réessayez.",
    problem_throttled: "Trop de tentatives. Patientez quelques minutes, puis réessayez.",
    problem_busy: "De nombreuses personnes se connectent en ce moment. Patientez un instant, puis réessayez.",
    problem_expired: "Ce formulaire est resté ouvert trop longtemps. Connectez-vous de nouveau.",
    other_way: "ou",
    continue_with: "Continuer avec {}",
    problem_provider_cancelled: "La connexion auprès de l’autre fournisseur a été annulée. Réessayez ou choisissez un autre moyen.",
    problem_provider_failed: "La connexion auprès de l’autre fournisseur n’a pas fonctionné. Réessayez ; si cela se reproduit, prévenez les responsables de ce service.",
    problem_provider_unavailable: "L’autre fournisseur est injoignable pour le moment. Patientez un instant, puis réessayez.",
    problem_not_admitted: "Aucun compte n’existe ici pour vous chez ce fournisseur. Demandez-en un aux responsables de ce service.",
    consent_title: "Autoriser l’accès\u{a0}?",
    consent_lead: "{} demande l’autorisation de\u{a0}:",
    consent_user: "Vous êtes connecté en tant que {}.",
    consent_trust: "N’autorisez l’accès que si vous faites confiance à l’application.",
    allow: "Autoriser",
    deny: "Refuser",
    scope_openid: "Savoir qui vous êtes",
    scope_profile: "Voir votre nom et votre profil",
    scope_email: "Voir votre adresse e-mail",
    scope_phone: "Voir votre numéro de téléphone",
    scope_address: "Voir votre adresse postale",
    scope_offline_access: "Conserver cet accès en votre absence",
    logout_title: "Se déconnecter\u{a0}?",
    logout_user: "Vous êtes connecté en tant que {}.",
    logout_lead: "La déconnexion met fin à votre session dans ce navigateur. Pour rester connecté, fermez cette page.",
    sign_out: "Se déconnecter",
    logged_out_title: "Vous êtes déconnecté",
    logged_out_lead: "Vous pouvez maintenant fermer cette page.",
    error_request: "Erreur de requête",
    error_not_found: "Page introuvable",
    error_busy: "Trop de requêtes",
    error_server: "Une erreur s’est produite",
    error_advice: "Revenez à l’application et réessayez. Si l’erreur se répète, transmettez l’identifiant de requête aux responsables de l’application.",
    request_id: "Identifiant de requête",
    form_post_title: "Un instant",
    form_post_lead: "Vous allez être redirigé vers l’application. Si rien ne se passe, appuyez sur le bouton.",
    proceed: "Continuer",
    home_title: "Serveur de développement",
    home_lead: "Ce serveur sert à faire des essais sur cette machine. Il vous connecte avec une application d’exemple et affiche les jetons.",
    home_user: "L’utilisateur d’exemple est {}.",
    home_password: "Son mot de passe a été affiché au démarrage du serveur.",
    home_endpoints: "Points d’accès",
    tokens_title: "Jetons",
    tokens_lead: "Voici ce que l’application d’exemple a reçu.",
    token_header: "En-tête",
    token_payload: "Revendications",
    token_raw: "Tel qu’envoyé",
    token_response: "Réponse du point d’accès des jetons",
};

/// Spanish.
pub static ES: Text<'static> = Text {
    sign_in: "Iniciar sesión",
    sign_in_to: "para continuar en {}",
    user_name: "Nombre de usuario o correo electrónico",
    password: "Contraseña",
    continue_as: "Continuar como {}",
    other_account: "o usar otra cuenta",
    problem_credentials: "El nombre de usuario y la contraseña no coinciden. Revise ambos e inténtelo de nuevo.",
    problem_throttled: "Demasiados intentos. Espere unos minutos e inténtelo de nuevo.",
    problem_busy: "Muchas personas están iniciando sesión en este momento. Espere un instante e inténtelo de nuevo.",
    problem_expired: "Este formulario ha estado abierto demasiado tiempo. Inicie sesión otra vez.",
    other_way: "o",
    continue_with: "Continuar con {}",
    problem_provider_cancelled: "El inicio de sesión con el otro proveedor se canceló. Inténtelo de nuevo o elija otra forma.",
    problem_provider_failed: "El inicio de sesión con el otro proveedor no funcionó. Inténtelo de nuevo; si vuelve a ocurrir, avise a los responsables de este servicio.",
    problem_provider_unavailable: "No se puede contactar con el otro proveedor en este momento. Espere un momento e inténtelo de nuevo.",
    problem_not_admitted: "No hay aquí ninguna cuenta para usted en ese proveedor. Pida una a los responsables de este servicio.",
    consent_title: "¿Permitir el acceso?",
    consent_lead: "{} solicita permiso para:",
    consent_user: "Ha iniciado sesión como {}.",
    consent_trust: "Permita el acceso solo si confía en la aplicación.",
    allow: "Permitir",
    deny: "Denegar",
    scope_openid: "Saber quién es usted",
    scope_profile: "Ver su nombre y su perfil",
    scope_email: "Ver su dirección de correo electrónico",
    scope_phone: "Ver su número de teléfono",
    scope_address: "Ver su dirección postal",
    scope_offline_access: "Mantener este acceso en su ausencia",
    logout_title: "¿Cerrar sesión?",
    logout_user: "Ha iniciado sesión como {}.",
    logout_lead: "Se cerrará su sesión en este navegador. Para mantenerla abierta, cierre esta página.",
    sign_out: "Cerrar sesión",
    logged_out_title: "Ha cerrado la sesión",
    logged_out_lead: "Ya puede cerrar esta página.",
    error_request: "Error en la solicitud",
    error_not_found: "Página no encontrada",
    error_busy: "Demasiadas solicitudes",
    error_server: "Algo ha fallado",
    error_advice: "Vuelva a la aplicación e inténtelo de nuevo. Si el error se repite, envíe el identificador de la solicitud a los responsables de la aplicación.",
    request_id: "Identificador de la solicitud",
    form_post_title: "Un momento",
    form_post_lead: "Está volviendo a la aplicación. Si no ocurre nada, pulse el botón.",
    proceed: "Continuar",
    home_title: "Servidor de desarrollo",
    home_lead: "Este servidor sirve para hacer pruebas en esta máquina. Inicia sesión con una aplicación de ejemplo y muestra los tokens.",
    home_user: "El usuario de ejemplo es {}.",
    home_password: "La contraseña se mostró al arrancar el servidor.",
    home_endpoints: "Puntos de acceso",
    tokens_title: "Tokens",
    tokens_lead: "Esto es lo que ha recibido la aplicación de ejemplo.",
    token_header: "Cabecera",
    token_payload: "Atributos (claims)",
    token_raw: "Tal como se envió",
    token_response: "Respuesta con los tokens",
};

/// Japanese.
pub static JA: Text<'static> = Text {
    sign_in: "サインイン",
    sign_in_to: "{} に進むにはサインインしてください",
    user_name: "ユーザー名またはメールアドレス",
    password: "パスワード",
    continue_as: "{} として続ける",
    other_account: "または別のアカウントを使う",
    problem_credentials: "ユーザー名とパスワードの組み合わせが正しくありません。両方を確認して、もう一度お試しください。",
    problem_throttled: "試行回数が多すぎます。数分待ってから、もう一度お試しください。",
    problem_busy: "ただいまサインインが集中しています。少し待ってから、もう一度お試しください。",
    problem_expired: "フォームの有効期限が切れました。もう一度サインインしてください。",
    other_way: "または",
    continue_with: "{} で続ける",
    problem_provider_cancelled: "他のプロバイダーでのログインが取り消されました。もう一度試すか、別の方法を選んでください。",
    problem_provider_failed: "他のプロバイダーでのログインに失敗しました。もう一度お試しください。続く場合は、このサービスの運営者にお知らせください。",
    problem_provider_unavailable: "他のプロバイダーに現在接続できません。しばらく待ってからもう一度お試しください。",
    problem_not_admitted: "そのプロバイダーに対応するアカウントがここにはありません。このサービスの運営者にお問い合わせください。",
    consent_title: "アクセスを許可しますか？",
    consent_lead: "{} は次の許可を求めています。",
    consent_user: "{} としてサインインしています。",
    consent_trust: "このアプリケーションを信頼できる場合にのみ許可してください。",
    allow: "許可する",
    deny: "許可しない",
    scope_openid: "あなたが誰であるかを確認する",
    scope_profile: "名前とプロフィールを見る",
    scope_email: "メールアドレスを見る",
    scope_phone: "電話番号を見る",
    scope_address: "住所を見る",
    scope_offline_access: "あなたが利用していない間もアクセスを維持する",
    logout_title: "サインアウトしますか？",
    logout_user: "{} としてサインインしています。",
    logout_lead: "サインアウトすると、このブラウザーでのセッションが終了します。サインインしたままにするには、このページを閉じてください。",
    sign_out: "サインアウト",
    logged_out_title: "サインアウトしました",
    logged_out_lead: "このページを閉じてもかまいません。",
    error_request: "リクエストエラー",
    error_not_found: "ページが見つかりません",
    error_busy: "リクエストが多すぎます",
    error_server: "問題が発生しました",
    error_advice: "アプリケーションに戻って、もう一度お試しください。繰り返し発生する場合は、リクエスト ID をアプリケーションの運営者にお知らせください。",
    request_id: "リクエスト ID",
    form_post_title: "しばらくお待ちください",
    form_post_lead: "アプリケーションに戻ります。画面が変わらない場合は、ボタンを押してください。",
    proceed: "続ける",
    home_title: "開発用サーバー",
    home_lead: "このサーバーは、このマシンで動作を試すためのものです。サンプルアプリケーションでサインインし、トークンを表示します。",
    home_user: "サンプルユーザーは {} です。",
    home_password: "パスワードは、サーバーの起動時に表示されました。",
    home_endpoints: "エンドポイント",
    tokens_title: "トークン",
    tokens_lead: "サンプルアプリケーションが受け取った内容です。",
    token_header: "ヘッダー",
    token_payload: "クレーム",
    token_raw: "送信されたままの形式",
    token_response: "トークンレスポンス",
};

/// Arabic.
pub static AR: Text<'static> = Text {
    sign_in: "تسجيل الدخول",
    sign_in_to: "للمتابعة إلى {}",
    user_name: "اسم المستخدم أو البريد الإلكتروني",
    password: "كلمة المرور",
    continue_as: "المتابعة باسم {}",
    other_account: "أو استخدام حساب آخر",
    problem_credentials: "اسم المستخدم وكلمة المرور غير متطابقين. تحقق منهما ثم حاول مرة أخرى.",
    problem_throttled: "محاولات كثيرة جدًا. انتظر بضع دقائق ثم حاول مرة أخرى.",
    problem_busy: "يسجّل عدد كبير من الأشخاص الدخول الآن. انتظر لحظة ثم حاول مرة أخرى.",
    problem_expired: "بقي هذا النموذج مفتوحًا مدة طويلة. سجّل الدخول مرة أخرى.",
    other_way: "أو",
    continue_with: "المتابعة باستخدام {}",
    problem_provider_cancelled: "أُلغي تسجيل الدخول لدى المزوّد الآخر. حاول مرة أخرى أو اختر طريقة أخرى.",
    problem_provider_failed: "لم ينجح تسجيل الدخول لدى المزوّد الآخر. حاول مرة أخرى، وإن تكرر ذلك فأخبر القائمين على هذه الخدمة.",
    problem_provider_unavailable: "لا يمكن الوصول إلى المزوّد الآخر حاليًا. انتظر لحظة ثم حاول مرة أخرى.",
    problem_not_admitted: "لا يوجد لك حساب هنا لدى ذلك المزوّد. اطلب حسابًا من القائمين على هذه الخدمة.",
    consent_title: "هل تسمح بالوصول؟",
    consent_lead: "يطلب {} الإذن بما يلي:",
    consent_user: "أنت مسجّل الدخول باسم {}.",
    consent_trust: "لا تسمح بذلك إلا إذا كنت تثق بالتطبيق.",
    allow: "السماح",
    deny: "الرفض",
    scope_openid: "معرفة هويتك",
    scope_profile: "الاطلاع على اسمك وملفك الشخصي",
    scope_email: "الاطلاع على عنوان بريدك الإلكتروني",
    scope_phone: "الاطلاع على رقم هاتفك",
    scope_address: "الاطلاع على عنوانك البريدي",
    scope_offline_access: "الاحتفاظ بهذا الوصول أثناء غيابك",
    logout_title: "هل تريد تسجيل الخروج؟",
    logout_user: "أنت مسجّل الدخول باسم {}.",
    logout_lead: "ينهي تسجيل الخروج جلستك في هذا المتصفح. للبقاء مسجّل الدخول، أغلق هذه الصفحة.",
    sign_out: "تسجيل الخروج",
    logged_out_title: "تم تسجيل خروجك",
    logged_out_lead: "يمكنك إغلاق هذه الصفحة الآن.",
    error_request: "خطأ في الطلب",
    error_not_found: "الصفحة غير موجودة",
    error_busy: "طلبات كثيرة جدًا",
    error_server: "حدث خطأ ما",
    error_advice: "عُد إلى التطبيق وحاول مرة أخرى. إذا تكرر الخطأ، فأرسل معرّف الطلب إلى القائمين على التطبيق.",
    request_id: "معرّف الطلب",
    form_post_title: "لحظة من فضلك",
    form_post_lead: "تجري إعادتك إلى التطبيق. إذا لم يحدث شيء، فاضغط على الزر.",
    proceed: "متابعة",
    home_title: "خادم التطوير",
    home_lead: "هذا الخادم مخصّص للتجربة على هذا الجهاز. يسجّل دخولك عبر تطبيق تجريبي ويعرض الرموز المميزة.",
    home_user: "المستخدم التجريبي هو {}.",
    home_password: "ظهرت كلمة المرور عند تشغيل الخادم.",
    home_endpoints: "نقاط النهاية",
    tokens_title: "الرموز المميزة",
    tokens_lead: "هذا ما استلمه التطبيق التجريبي.",
    token_header: "الترويسة",
    token_payload: "المطالبات",
    token_raw: "كما أُرسل",
    token_response: "استجابة الرموز المميزة",
};
