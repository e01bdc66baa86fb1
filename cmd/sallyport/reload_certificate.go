package main

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
)

// keyPair is what both listeners show. A new one counts for the connections that are made from then on.
type keyPair struct {
	cert, key string // paths
	current   atomic.Pointer[tls.Certificate]
}

// load reads the pair. A chain and a key that do not belong together, as for a moment while both are replaced, change nothing.
func (p *keyPair) load() error {
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("tls-cert %s, tls-key %s: %w", p.cert, p.key, err)
	}
	p.current.Store(&pair)
	return nil
}

func (p *keyPair) reload(log reloadLog) {
	if err := p.load(); err != nil {
		log.refused("certificate", err)
		return
	}
	log.sound("certificate", "reloaded", "what", "certificate", "not_after", p.current.Load().Leaf.NotAfter)
}

// config is that of a server; nil when there is no certificate.
func (p *keyPair) config() *tls.Config {
	if p.cert == "" {
		return nil
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current.Load(), nil },
	}
}
