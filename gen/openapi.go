// Package gen holds what is generated from proto/. This file is not: it gives the program the document that describes the REST paths.
package gen

import _ "embed" // for the document

// OpenAPI describes the REST paths, in OpenAPI 2.0.
//
//go:embed openapi/sallyport.swagger.json
var OpenAPI []byte
