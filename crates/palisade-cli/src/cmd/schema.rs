use crate::args::Schema;
use crate::exit::{OK, Outcome};
use crate::output::raw;

/// Prints a schema.
pub(crate) fn schema(args: &Schema) -> Outcome {
    let schema = match args.server.as_str() {
        "mysql" => palisade::mysql_schema(),
        _ => palisade::postgres_schema(&args.schema),
    };
    raw(schema.as_bytes())?;
    Ok(OK)
}
