//! The tests of each chapter: of the finished code in `mini`, and of the reader's in `start`.

#[path = "ch1.rs"]
mod ch1;
#[path = "ch2.rs"]
mod ch2;
#[path = "ch3.rs"]
mod ch3;
#[path = "ch4.rs"]
mod ch4;
#[path = "ch5.rs"]
mod ch5;
#[path = "ch6.rs"]
mod ch6;
#[path = "ch7.rs"]
mod ch7;
#[path = "ch8.rs"]
mod ch8;
#[path = "ch9.rs"]
mod ch9;
