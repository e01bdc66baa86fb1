package client

// ServiceConfig is compared with the file it repeats.
const ServiceConfig = serviceConfig
