package api

import _ "embed"

// OpenAPI describes the interface for programs (OpenAPI 3.1). A test of the daemon
// holds it to the documents and to what is served.
//
//go:embed openapi.json
var OpenAPI []byte
