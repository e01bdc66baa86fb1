package engine

import "time"

// WorkDeadline is the instant at which the call will be over.
func (p *Plan) WorkDeadline() time.Time { return p.work }
