// Package jaeger makes calls through the built broker, and reads in a real Jaeger what it shows of them. It has tests only.
//
// Jaeger is a pinned tool (tools/jaeger): `make test` builds it. Where it has not been built the tests are skipped;
// SALLYPORT_REQUIRE_JAEGER=1 makes a failure of that.
package jaeger
