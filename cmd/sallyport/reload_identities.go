package main

import "github.com/sallyport/sallyport/broker"

// reloadTokens puts other identities in force. A call that was let in goes on under the one it came with.
func reloadTokens(s *settings, server *broker.Server, log reloadLog) {
	identities, err := broker.LoadTokens(s.Tokens, s.proofs())
	if err != nil {
		log.refused("tokens", err)
		return
	}
	server.ReplaceIdentities(identities)
	log.sound("tokens", "reloaded", "what", "tokens")
}

// reloadAuthorities has client certificates judged by other authorities, from the next RPC on, also on the connections there are.
func reloadAuthorities(authorities *broker.Authorities, log reloadLog) {
	if err := authorities.Reload(); err != nil {
		log.refused("authorities", err)
		return
	}
	log.sound("authorities", "reloaded", "what", "authorities of client certificates")
}
