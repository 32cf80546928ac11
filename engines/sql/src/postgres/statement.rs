use tokio_postgres::types::Type;

const TEXT: Type = Type::TEXT;
const TEXTS: Type = Type::TEXT_ARRAY;
const UUID: Type = Type::UUID;
const UUIDS: Type = Type::UUID_ARRAY;
const BOOL: Type = Type::BOOL;
const BOOLS: Type = Type::BOOL_ARRAY;
const INT2: Type = Type::INT2;
const INT2S: Type = Type::INT2_ARRAY;
const INT4: Type = Type::INT4;
const INT4S: Type = Type::INT4_ARRAY;
const INT8: Type = Type::INT8;
const INT8S: Type = Type::INT8_ARRAY;
const BYTEA: Type = Type::BYTEA;
const BYTEAS: Type = Type::BYTEA_ARRAY;

/// The functions of our schema, as a client calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Take,
    Give,
    Ask,
    Leave,
    Renew,
    Keep,
    Change,
    Evict,
    Stand,
    Show,
    Fetch,
    FetchAll,
    Store,
    Sweep,
    SetUpSession,
    Warm,
    Notify,
    Note,
    Sessions,
    SweepSessions,
}

impl Verb {
    pub(crate) const COUNT: usize = Self::SweepSessions as usize + 1;

    /// The function and the types of what it takes.
    fn signature(self) -> (&'static str, &'static [Type]) {
        match self {
            Self::Take => {
                ("take", &[TEXT, TEXT, TEXT, TEXT, UUID, INT2, INT2, INT2, INT4, INT8, INT8, BYTEA])
            }
            Self::Give => ("give", &[TEXT, TEXT, TEXT, UUID, INT8, BOOL, INT8]),
            Self::Ask => {
                ("ask", &[TEXT, TEXT, TEXT, TEXTS, UUIDS, INT2S, INT2S, INT2S, INT4S, INT8S, INT8S, BYTEAS])
            }
            Self::Leave => ("leave", &[TEXT, TEXT, TEXTS, UUIDS, INT8S, BOOLS, INT8S]),
            Self::Renew => ("renew", &[TEXT, TEXT, TEXTS, UUIDS, INT8S, INT8S, INT4S]),
            Self::Keep => ("keep", &[TEXT, TEXT, INT4S, INT8S, TEXTS, UUIDS, INT8S, INT4S]),
            Self::Change => ("change", &[TEXT, TEXT, UUID, INT2, INT4, BYTEA]),
            Self::Evict => ("evict", &[TEXT, TEXT, UUID, TEXT]),
            Self::Stand => ("stand", &[TEXT, TEXTS, UUIDS]),
            Self::Show => ("show", &[TEXT, TEXT, TEXT, TEXT, INT8]),
            Self::Fetch => ("fetch", &[TEXT, TEXT]),
            Self::FetchAll => ("fetch_all", &[TEXT, TEXT]),
            Self::Store => ("store", &[TEXT, TEXT, INT8, BYTEA, INT8, INT8, TEXT, INT8]),
            Self::Sweep => ("sweep", &[]),
            Self::SetUpSession => ("set_up_session", &[]),
            Self::Warm => ("warm", &[]),
            Self::Notify => ("pg_notify", &[TEXT, TEXT]),
            Self::Note => {
                ("note", &[TEXT, UUIDS, UUIDS, TEXTS, INT8S, TEXTS, INT2S, INT8S, INT8S, TEXTS, BYTEAS])
            }
            Self::Sessions => ("sessions", &[TEXT, INT8, TEXT]),
            Self::SweepSessions => ("sweep_sessions", &[]),
        }
    }

    pub(crate) fn types(self) -> &'static [Type] {
        self.signature().1
    }

    /// The statement, in `schema` as it is quoted.
    pub(crate) fn sql(self, schema: &str) -> String {
        let (name, types) = self.signature();
        let schema = if self == Self::Notify { "pg_catalog" } else { schema };
        let places: Vec<String> = (1..=types.len()).map(|place| format!("${place}")).collect();
        // As a row source a function costs more, which is only worth it for what gives rows.
        let select = if matches!(self, Self::Take | Self::Give) { "SELECT" } else { "SELECT * FROM" };
        format!("{select} {schema}.{name}({})", places.join(", "))
    }
}
