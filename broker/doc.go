// Package broker is the gRPC side: it decodes, authenticates and encodes, and decides nothing.
//
// A call that was taken ends with status OK and a typed outcome, whatever happened upstream. A gRPC error of this package speaks
// of the broker alone; raised before any byte could have left, it carries a google.rpc.ErrorInfo whose metadata says
// sent: "false" (contract.md §1). Generated types stay here.
package broker
