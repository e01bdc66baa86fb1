package client

// serviceConfig is the gRPC service config of every client we ship, clients/service_config.json, which a test holds it to: an
// embedded file must stand beside its package. It has neither a retryPolicy nor a hedgingPolicy, since both would send again what
// the broker refused to send again. A broker that cannot be reached is an error at once and not a wait.
const serviceConfig = `{
  "methodConfig": [
    {
      "name": [{ "service": "sallyport.v1.CallService" }],
      "waitForReady": false,
      "maxRequestMessageBytes": 20971520,
      "maxResponseMessageBytes": 20971520
    }
  ]
}
`
