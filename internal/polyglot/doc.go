// Package polyglot runs the client programs of clients/ against the built broker, over stubs generated from our proto by the tools
// of each language, and the examples that are services in those languages. It has tests only.
//
// A toolchain that is not there skips its test, with the reason. SALLYPORT_REQUIRE_LANGUAGES=1 makes a failure of that.
package polyglot
