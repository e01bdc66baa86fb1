package tracing

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapesAtOnce bounds the memory that scrapes take: a body is some MiB at most.
const scrapesAtOnce = 4

// Scrape serves what is counted and measured, in the text format of Prometheus or as OpenMetrics, which also has exemplars. log hears of
// what could not be told. Nothing is there of an observer that counts nothing.
func (o *Observer) Scrape(log *slog.Logger) http.Handler {
	if o.meter == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(o.meter.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// One metric that cannot be told must not hide the others from whoever looks for the cause.
		ErrorHandling:       promhttp.ContinueOnError,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: scrapesAtOnce,
	})
}
