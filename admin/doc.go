// Package admin keeps what operators decide while the broker runs: policies, and breakers that are forced. Each write is checked
// against everything in force, made durable together with a record of who did it and why, and only then put in force.
//
// What is written stands in a [Store]; what is in force stands in memory, so that calls go on when the store fails.
package admin
