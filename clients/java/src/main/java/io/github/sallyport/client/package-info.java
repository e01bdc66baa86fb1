/** Calls through a Sallyport broker: a client that resends nothing, and what to do with what comes back. */
package io.github.sallyport.client;
