package main

import (
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/tracing"
)

// watch has what the node is made of read when somebody scrapes.
func (n *node) watch(s *settings, origins *engine.Origins) {
	n.observer.Watch(tracing.Watched{
		Origins:     origins,
		Load:        n.server.Load,
		Connections: func() tracing.Connections { return tracing.Connections(n.transport.Connections()) },
		EachOrigin:  n.transport.EachOrigin,
		Loosened: map[string]int64{
			"dev": number(s.Dev), "insecure": number(s.Insecure), "allow-special": int64(len(s.AllowSpecial)),
		},
	})
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
