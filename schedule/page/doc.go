// Package page draws the status page: one HTML page, made whole by the server
// from a status.Status, with the styles in it. It promises:
//
//  1. Nothing on it comes from another host, and its Content-Security-Policy
//     lets nothing: the only script is a file of the same origin.
//  2. The script only fetches the page again. Without it all is there, and the
//     page reloads itself.
//  3. Every string of the status is escaped: names of members, reasons and
//     endpoints may be anybody's.
//  4. What colour says is said in words or shapes too, and the pictures as a
//     table.
//
// All times on it are UTC.
package page
